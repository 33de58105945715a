"""What came later adds nothing to what the published results are filed under."""

import json
import shlex
from pathlib import Path

import pytest

from engram.app.report import value_text
from engram.app.runs import address, read_contents
from engram.lab.protocol import specify

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "results").glob("*.jsonl"))


def network_of(row):
    """The network that a run's command names, from the root: its source is what it was."""
    if "network" not in row["identity"]:
        return {}
    words = shlex.split(row["command"])
    file = ROOT / words[words.index("--network") + 1]
    return {"network": str(file), "network_arguments": row["identity"]["network"]["arguments"]}


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
            **network_of(row),
        )
        described = json.loads(json.dumps(spec.description())) | {"data": held["data"]}
        assert described == held
        assert address(described, row["seed"]) == row["address"]


def test_the_newer_methods_run_with_what_their_searches_chose():
    held = read_contents(ROOT / "results" / "newer-methods.jsonl")
    published = {row.address for row in held.rows}
    assert len(held.choices) == 10
    for choice in held.choices:
        spec = specify(choice.identity["benchmark"], choice.identity["method"])
        assert {name: spec.settings[name] for name in choice.chosen} == dict(choice.chosen)
        identity = spec.description() | {"data": choice.identity["data"]}
        assert {address(identity, seed) for seed in range(5)} <= published
