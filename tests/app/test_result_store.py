"""The store keeps every result, for any number of processes, and refuses what it is not."""

import dataclasses
import hashlib
import json
import sqlite3
import subprocess
import sys

import pytest

from engram.app.runs import Row, Store, address, read_lines, write_lines
from engram.errors import EngramError


def test_the_address_is_the_sha256_of_identity_and_seed():
    text = '{"identity":{"method":"van","settings":{"a":0.1}},"seed":7}'
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert address({"settings": {"a": 0.1}, "method": "van"}, 7) == expected


def test_the_command_device_and_time_are_no_part_of_the_address(make_row):
    assert make_row(command="one").address == make_row(command="two").address
    assert make_row(seed=0).address != make_row(seed=1).address
    assert make_row(learning_rate=0.1).address != make_row(learning_rate=0.2).address


def test_what_is_added_comes_back(store, make_row):
    rows = [make_row(seed=seed) for seed in range(3)]
    assert store.add(rows) == 3
    assert store.rows() == rows
    assert store.newest(rows[1].address) == rows[1]
    assert store.newest("0" * 64) is None


def test_a_second_result_at_an_address_is_added_not_put_in_place(store, make_row):
    first, second = make_row(), make_row()
    store.add([first])
    store.add([second])
    assert store.rows() == [first, second]
    assert store.newest(first.address) == second


@pytest.mark.parametrize("statement", ["UPDATE results SET seconds = 0", "DELETE FROM results"])
def test_the_file_itself_refuses_changes(store, make_row, statement):
    store.add([make_row()])
    with sqlite3.connect(store.path) as other, pytest.raises(sqlite3.IntegrityError, match="never"):
        other.execute(statement)
    other.close()


def test_a_store_survives_being_closed(tmp_path, make_row):
    path = tmp_path / "a folder" / "näme ?#%.sqlite"
    with Store(path) as store:
        store.add([make_row()])
    with Store(path, read_only=True) as store:
        assert len(store.rows()) == 1


def test_no_name_has_a_meaning_of_its_own(tmp_path, monkeypatch, make_row):
    monkeypatch.chdir(tmp_path)
    with Store(type(tmp_path)(":memory:")) as store:
        store.add([make_row()])
    assert (tmp_path / ":memory:").stat().st_size > 0


def _text(path):
    path.write_text("my diary\n" * 1000)


def _other_database(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE diary (day)")
    other.close()


def _newer(path):
    Store(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 3")
    other.close()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (_text, "not a database"),
        (_other_database, "another program's database"),
        (_newer, "schema 3, newer"),
        (lambda path: path.mkdir(), "is a folder; give the path of a file"),
    ],
)
def test_what_is_not_a_store_is_refused_and_left_alone(tmp_path, make, sentence, read_only):
    path = tmp_path / "file"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(EngramError, match=sentence):
        Store(path, read_only=read_only)
    assert before is None or path.read_bytes() == before


def test_a_damaged_result_is_told_in_one_sentence(tmp_path):
    path = tmp_path / "store.sqlite"
    Store(path).close()
    with sqlite3.connect(path) as other:
        marks = ", ".join(["?"] * 10)
        row = ["digest", "address", 0, "{", "{}", "cpu", 1.0, "now", "{}", "engram"]
        columns = "digest, address, seed, identity, outcome, device, seconds, created"
        other.execute(f"INSERT INTO results ({columns}, versions, command) VALUES ({marks})", row)
    other.close()
    with (
        Store(path) as store,
        pytest.raises(EngramError, match=r"^Row 1 of .* is damaged: its dig"),
    ):
        store.rows()


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EngramError, match="cannot be used"):
        Store(tmp_path / "file" / "store.sqlite")


def test_reading_makes_no_store(tmp_path):
    with pytest.raises(EngramError, match="There is no store"):
        Store(tmp_path / "none" / "store.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []


_WRITER = """
import sys
from pathlib import Path
from engram.app.runs import Row, Store, read_lines
with Store(Path(sys.argv[1])) as store:
    for row in read_lines(Path(sys.argv[2])):
        store.add([row])
"""


def test_two_processes_create_and_write_one_store(tmp_path, make_row):
    path = tmp_path / "store.sqlite"
    processes = []
    for part in range(2):
        lines = tmp_path / f"{part}.jsonl"
        write_lines([make_row(seed=seed) for seed in range(50 * part, 50 * part + 50)], lines)
        command = [sys.executable, "-c", _WRITER, str(path), str(lines)]
        processes.append(subprocess.Popen(command))
    assert [process.wait(timeout=30) for process in processes] == [0, 0]
    with Store(path) as store:
        assert sorted(row.seed for row in store.rows()) == list(range(100))
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()


def test_an_export_can_be_merged_and_merged_again(tmp_path, store, make_row):
    rows = [make_row(seed=0), make_row(seed=0), make_row(method="mega-i", seed=1)]
    store.add(rows)
    assert write_lines(store.rows(), tmp_path / "all.jsonl") == 3
    with Store(tmp_path / "other.sqlite") as other:
        assert other.add(read_lines(tmp_path / "all.jsonl")) == 3
        assert other.add(read_lines(tmp_path / "all.jsonl")) == 0
        assert other.rows() == rows


def test_an_export_overwrites_nothing(tmp_path, make_row):
    path = tmp_path / "precious.jsonl"
    path.write_text("precious")
    with pytest.raises(EngramError, match="exists already"):
        write_lines([make_row()], path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def _change(row, path, value):
    fields = json.loads(row.line)
    place = fields
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    if path[0] in ("identity", "seed") and isinstance(fields["seed"], int):
        fields["address"] = address(fields["identity"], fields["seed"])
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (["seed"], True, "seed has the wrong type"),
        (["seed"], -1, "seed must be from 0"),
        (["seed"], 2**70, "seed must be from 0"),
        (["address"], "0" * 64, "is not that of its identity"),
        (["identity", "method"], "../../etc", "plain name"),
        (["identity", "method"], "<script>", "plain name"),
        (["identity", "tasks"], 0, "at least 1"),
        (["identity", "settings"], [], "settings has the wrong type"),
        (["identity", "settings", "fault"], "\x1b[2J", "printable text only"),
        (["command"], "one\ntwo", "printable text only"),
        (["device"], "gpu‮", "printable text only"),
        (["seconds"], -1, "at least 0"),
        (["created"], "yesterday", "created must look like"),
        (["outcome", "accuracy", 0, 0], 1.5, "not a fraction"),
        (["outcome", "accuracy", 0, 0], "0.5", "not a fraction"),
        (["outcome", "accuracy", 0], [0.5], "3 rows of 3"),
        (["outcome", "curve", 0, 0], None, "not a fraction"),
        (["outcome", "curve"], [[0.5]], "3 rows"),
        (["surprise"], 1, "no field 'surprise'"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_merged(tmp_path, make_row, path, value, sentence):
    lines = tmp_path / "bad.jsonl"
    lines.write_text(make_row().line + "\n\n" + _change(make_row(), path, value) + "\n")
    with pytest.raises(EngramError, match=r"^Line 3 of .*bad\.jsonl") as error:
        read_lines(lines)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"seconds": NaN}',
        b'{"seed": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path, line):
    lines = tmp_path / "bad.jsonl"
    lines.write_bytes(line)
    with pytest.raises(EngramError, match=r"^Line 1 of "):
        read_lines(lines)


def test_an_infinite_setting_is_refused(tmp_path, make_row):
    lines = tmp_path / "bad.jsonl"
    lines.write_text(make_row().line.replace('"learning_rate":0.1', '"learning_rate":1e999'))
    with pytest.raises(EngramError, match=r"^Line 1 of "):
        read_lines(lines)


def test_a_fact_that_is_no_number_or_no_line_does_not_lose_the_run(laboratory):
    from engram.app.runs import record

    spec = laboratory.specify("permuted-mnist", "van", tasks=2)
    outcome = laboratory.run(spec, [0])[0]
    facts = {"loss": float("nan"), "cpu": "one\ntwo\x1b"}
    row = record(spec, dataclasses.replace(outcome, facts=facts), "c")
    assert row.outcome["facts"] == {"loss": "nan", "cpu": "one two�"}
    assert Row.of(json.loads(row.line)) == row
