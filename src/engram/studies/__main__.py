"""``python -m engram.studies FILE...`` publishes the times of the results in some files."""

import sys
from pathlib import Path

from engram.runs import read_lines
from engram.studies._published import publish

if __name__ == "__main__":
    rows = [row for name in sys.argv[1:] for row in read_lines(Path(name))]
    publish(rows, Path(__file__).parent)
