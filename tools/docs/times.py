"""``python -m tools.docs.times FILE...`` writes the times that come with ``engram.app.studies``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from engram.app.runs import Row, read_lines
from engram.app.studies import taken
from engram.files import whole_file

TIMES = Path(__file__).parents[2] / "src" / "engram" / "app" / "studies" / "times.json"


def write_times(rows: Iterable[Row], path: Path) -> None:
    """Write about how long the runs of each kind took, a line for each."""
    lines = ",\n".join(json.dumps(each) for each in taken(rows))
    with whole_file(path) as part:
        part.write_text(f"[\n{lines}\n]\n", "utf-8")


# Results that were made on machines busy with other work: their times mislead.
BUSY = ("matched-budget", "networks", "newer-methods", "unbalanced")

if __name__ == "__main__":
    files = [path for path in map(Path, sys.argv[1:]) if path.stem not in BUSY]
    write_times([row for file in files for row in read_lines(file)], TIMES)
