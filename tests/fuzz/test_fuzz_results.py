"""Results of others, in lines and in stores: what enters can be shown, and nothing else enters."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from fuzz_cases import attempt, generated, refused
from fuzz_files import changes, contents, damaged
from fuzz_junk import changed, places
from hypothesis import strategies as st

from engram.app import report, runs
from engram.app.cli.results import merge_into
from engram.lab import protocol

SPEC = protocol.specify("permuted-mnist", "mega-ii", tasks=2, examples=10)
CHOICE = {
    "format": "choice-1",
    "identity": {**protocol.tuning_specs("permuted-mnist", "mega-i", tasks=2)[0].identity()},
    "seeds": 2,
    "chosen": {"epsilon": 0.1},
    "score": 90.5,
    "trials": [
        {"settings": {"epsilon": 0.1}, "score": 90.5, "values": [90.0, 91.0]},
        {"settings": {"epsilon": 0.2}, "score": None, "values": [None, 80.0]},
    ],
    **runs.stamp("engram tune"),
    "device": "cpu",
}
JSON = [None, True, -1, 0, 1, 2, 0.5, 2**63, 10**400, -0.5, 1e308, "", "x", "a\nb", "\ud800", "é"]
JSON += [
    [],
    {},
    [[]],
    [None],
    [[0.5, None], [0.5, 0.5]],
    {"a": 1},
    {"\n": 1},
    "9" * 5000,
    "../../x",
]
JSON += ["training", "tuning", "permuted-mnist", "choice-1", "choice-2", "2024-01-01T00:00:00.0Z"]
values = st.sampled_from([*JSON, ...])
many_places = st.lists(st.tuples(places, values), min_size=1, max_size=2)


def _row(seed=0):
    outcome = protocol.Outcome(seed, [[0.9, None], [0.5, 0.8]], [[0.1, 0.2]] * 2, 1.0, "cpu", {})
    return json.loads(runs.record(SPEC, outcome, "engram run").line)


ROW = _row()


def _entry(kind, changes, signed):
    """Return a row or a choice that was changed, and a row maybe signed by whoever changed it."""
    entry = ROW if kind == "row" else CHOICE
    for path, value in changes:
        entry = changed(entry, path, value) if entry else entry
    if kind == "row" and signed and isinstance(entry.get("identity"), dict):
        entry = {**entry, "address": runs.address(entry["identity"], entry.get("seed", 0))}
    return entry


entries = st.builds(_entry, st.sampled_from(["row", "row", "choice"]), many_places, st.booleans())
DEFAULTS = report.PaperDefaults(protocol.specify)


@generated(550, entry=entries)
def test_what_is_a_result_can_be_shown(entry):
    kind = runs.Choice if "format" in entry else runs.Row
    made = attempt(lambda: kind.of(entry))
    if refused(made):
        return
    assert json.loads(made.line) == entry
    if isinstance(made, runs.Row):
        summaries = report.summarise([made])
        assert json.dumps([report.as_json(summary) for summary in summaries])
        assert report.results_table(summaries, DEFAULTS).row_count == 1


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@generated(
    180,
    entries=st.lists(entries | st.just(ROW) | st.just(CHOICE), max_size=2),
    changes=st.just([]) | st.just([]) | changes,
)
def test_lines_are_merged_whole_or_not_at_all(place, entries, changes):
    lines = [json.dumps(entry) for entry in [ROW, *entries, CHOICE]]
    source, store = place / "lines.jsonl", place / "merged.sqlite"
    source.write_bytes(damaged("\n".join(lines).encode(), changes))
    before = contents(place)
    if refused(attempt(lambda: merge_into(store, source))):
        assert contents(place) == before
        return
    with runs.Store(store, read_only=True) as opened:
        written = {entry.line for entry in (*opened.rows(), *opened.choices())}
    read = runs.read_contents(source)
    assert written == {entry.line for entry in (*read.rows, *read.choices)}
    store.unlink()


def _filled(place):
    path = place / "whole.sqlite"
    if not path.exists():
        with runs.Store(path) as store:
            store.add([runs.Row.of(ROW), runs.Choice.of(CHOICE)])
    return path


def _used(path):
    with runs.Store(path, read_only=True) as store:
        rows, choices = store.rows(), store.choices()
    with runs.Store(path) as store:
        store.add([runs.Row.of(_row(7))])
    assert [json.loads(entry.line) for entry in (*rows, *choices)] == [ROW, CHOICE]


@generated(150, changes=changes)
def test_a_damaged_store_says_what_it_said_or_is_refused(place, changes):
    path = place / "damaged.sqlite"
    path.write_bytes(damaged(_filled(place).read_bytes(), changes))
    attempt(lambda: _used(path))
    assert not path.with_name(f"{path.name}-journal").exists()


@generated(
    100,
    column=st.sampled_from(["address", "seed", "identity", "outcome", "seconds", "versions"]),
    value=st.sampled_from(
        ["", "x", "{}", "[]", "NaN", "9" * 5000, "[" * 3000, b"\xff", 1, -1, 0.5]
    ),
    line=st.sampled_from(["", "x", "{}", "[]", "[" * 3000, b"\xff", 1, '{"format": "choice-1"}']),
)
def test_a_store_that_somebody_wrote_into_says_what_it_said_or_is_refused(
    place, column, value, line
):
    path = shutil.copy(_filled(place), place / "written.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        for table in ("results", "choices"):
            connection.execute(f"DROP TRIGGER {table}_never_change")
        connection.execute(f"UPDATE results SET {column} = ?", (value,))
        connection.execute("UPDATE choices SET line = ?", (line,))
        connection.commit()
    attempt(lambda: _used(path))


@generated(60, address=st.text(max_size=5) | st.sampled_from(["../x", "/etc/x", "\0", "a" * 300]))
def test_step_records_have_an_address_of_a_run(place, address):
    (place / "x.safetensors").write_bytes(b"")
    assert refused(attempt(lambda: runs.step_records(address, place / "store.sqlite")))
