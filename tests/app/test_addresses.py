"""What came later adds nothing to what the published results are filed under."""

import json
from pathlib import Path

import pytest

from engram.app.report import value_text
from engram.app.runs import address
from engram.lab.protocol import specify

RESULTS = sorted((Path(__file__).parents[2] / "results").glob("*.jsonl"))


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_published_results_are_found_under_their_addresses(file):
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    alike = {json.dumps(row["identity"], sort_keys=True): row for row in rows if "address" in row}
    for row in alike.values():
        held = row["identity"]
        spec = specify(
            held["benchmark"],
            held["method"],
            tasks=held["tasks"],
            examples=held["examples"],
            overrides={name: value_text(value) for name, value in held["settings"].items()},
            split=held["split"],
            passes=held.get("passes", 1),
        )
        described = json.loads(json.dumps(spec.description())) | {"data": held["data"]}
        assert described == held
        assert address(described, row["seed"]) == row["address"]
