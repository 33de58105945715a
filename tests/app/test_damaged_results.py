"""What is read is what was stored: damage is refused by name, and the rest can be saved."""

import dataclasses
import hashlib
import json
import random
import sqlite3
import sys
from contextlib import closing

import numpy as np
import pytest

from engram.app import runs
from engram.app.cli import main
from engram.app.runs import (
    Choice,
    Row,
    Store,
    Trial,
    read_contents,
    record,
    stamp,
    verify,
    write_lines,
    write_steps,
)
from engram.errors import EngramError

PAGE = 4096  # bytes, SQLite's


def steps_path(address, store):
    """Return where the step records of a run lie: beside the store, by the run's address."""
    return store.with_name(f"{store.stem}-steps") / f"{address}.safetensors"


@pytest.fixture
def choice(laboratory):
    spec = laboratory.tuning_specs("permuted-mnist", "mega-i", tasks=2)[0]
    trial = Trial({"epsilon": 0.1}, (90.0, 91.0))
    return Choice(spec.identity(), (trial,), "cpu", **stamp("engram tune"))


@pytest.fixture
def filled(tmp_path, make_row, choice):
    """Return the path of a store with results of few tasks and of many, and a choice."""
    path = tmp_path / "filled.sqlite"
    with Store(path) as store:
        store.add([make_row(seed=seed, tasks=tasks) for seed in range(6) for tasks in (2, 20)])
        store.add([choice])
    return path


def contents(path):
    """Return all that a store says, by every way to ask it."""
    with Store(path, read_only=True) as store:
        rows, choices = store.rows(), store.choices()
        newest = [store.newest(row.address) for row in rows]
        counts = [store.count(row.address) for row in rows]
    return rows, choices, newest, counts


def attempt(call, *arguments):
    """Return what a call returns, or the error that it raises."""
    try:
        return call(*arguments)
    except EngramError as error:
        return error


def flipped(content, bit):
    """Return bytes with one bit of them changed."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def swapped(content, one, other):
    """Return bytes with two pages in each other's place."""
    pages = [content[start : start + PAGE] for start in range(0, len(content), PAGE)]
    pages[one], pages[other] = pages[other], pages[one]
    return b"".join(pages)


def damages(content, kind):
    source = random.Random(kind)
    count = len(content) // PAGE
    if kind == "bits":
        return [flipped(content, source.randrange(8 * len(content))) for _ in range(300)]
    if kind == "headers":  # of the file and of its pages
        places = [
            *range(0, 100),
            *(page * PAGE + byte for page in range(count) for byte in range(16)),
        ]
        return [
            flipped(content, 8 * source.choice(places) + source.randrange(8)) for _ in range(200)
        ]
    if kind == "pages":
        pairs = [(one, other) for one in range(count) for other in range(one)]
        return [swapped(content, *pair) for pair in source.sample(pairs, 90)]
    return [content[: source.randrange(len(content))] for _ in range(30)]


@pytest.mark.parametrize("kind", ["bits", "headers", "pages", "ends"])
def test_a_damaged_store_is_refused_or_says_what_it_said(filled, tmp_path, kind):
    before, path = contents(filled), tmp_path / "damaged.sqlite"
    refused = 0
    for content in damages(filled.read_bytes(), kind):
        path.write_bytes(content)
        found = attempt(contents, path)
        assert found == before or str(path) in str(found)
        refused += isinstance(found, EngramError)
    assert refused > 20


def damage_a_row(path, make_row):
    """Turn an accuracy of a new row into another; return the row as it was, and its number."""
    row = make_row(seed=77, tasks=2)
    with Store(path) as store:
        store.add([row])
        number = len(store.rows())
    outcome = {**row.outcome, "accuracy": [[0.125, None], [0.25, 0.5]]}
    text = json.dumps(outcome, sort_keys=True, separators=(",", ":"))
    with closing(sqlite3.connect(path)) as other:
        find = "SELECT sql FROM sqlite_master WHERE name = 'results_never_change'"
        ((trigger,),) = other.execute(find).fetchall()
        other.execute("DROP TRIGGER results_never_change")
        other.execute("UPDATE results SET outcome = ? WHERE id = ?", (text, number))
        other.execute(trigger)
        other.commit()
    return row, number


def ask(*words, monkeypatch, capsys):
    """Run a command; return its exit code and what it printed."""
    monkeypatch.setattr(sys, "argv", ["engram", "results", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0, *capsys.readouterr()


def test_a_damaged_row_is_named_with_what_to_do(filled, make_row):
    row, number = damage_a_row(filled, make_row)
    for read in (lambda store: store.rows(), lambda store: store.newest(row.address)):
        with Store(filled) as store, pytest.raises(EngramError) as error:
            read(store)
        assert str(error.value).startswith(f"Row {number} of the store {str(filled)!r} is damaged:")
        assert "engram results --verify --export FILE" in str(error.value)


def test_all_is_verified_and_the_whole_ones_can_be_saved(
    filled, make_row, tmp_path, monkeypatch, capsys
):
    def command(*words):
        return ask(*words, monkeypatch=monkeypatch, capsys=capsys)

    with Store(filled) as store:
        whole, choices = store.rows(), store.choices()
    code, out, _ = command("--verify", "--store", filled)
    assert code == 0
    told = "12 of 12 results, 1 of 1 choice and 0 of 0 files of step records are whole."
    assert out == f"{filled}: {told}\n"
    _, number = damage_a_row(filled, make_row)
    write_steps(whole[0].address, filled, {"k2": np.ones(3)})
    lines = tmp_path / "whole.jsonl"
    code, out, err = command("--verify", "--store", filled, "--export", lines)
    assert code == 1
    first, last = out.splitlines()
    assert first == f"Row {number}: its digest is not that of its contents."
    assert "12 of 13 results, 1 of 1 choice and 1 of 1 file of step records are whole" in last
    assert str(lines) in err
    with Store(tmp_path / "new.sqlite") as new:
        found = read_contents(lines)
        new.add([*found.rows, *found.choices])
        assert (new.rows(), new.choices()) == (whole, choices)


def test_a_store_is_verified_as_a_whole(filled, tmp_path, monkeypatch, capsys):
    for words in (["--json"], ["--method", "van"], ["--merge", tmp_path / "x"]):
        code, _, err = ask(
            "--verify", "--store", filled, *words, monkeypatch=monkeypatch, capsys=capsys
        )
        assert (code, words[0] in err) == (2, True)


@pytest.mark.parametrize("kind", ["bits", "headers", "pages", "ends"])
def test_what_is_verified_as_whole_was_stored(filled, tmp_path, kind):
    """Whatever is damaged: what is called whole is what was stored, and the rest is a fault."""
    rows, choices, *_ = contents(filled)
    path = tmp_path / "damaged.sqlite"
    found_damaged = 0
    for content in damages(filled.read_bytes(), kind)[::3]:
        path.write_bytes(content)
        found = attempt(verify, path)
        if isinstance(found, EngramError):
            continue
        assert all(row in rows for row in found.rows)
        assert all(choice in choices for choice in found.choices)
        assert found.faults or (found.rows, found.choices) == (rows, choices)
        found_damaged += bool(found.faults)
    assert found_damaged or kind == "ends"


def test_a_lost_trigger_is_told(filled):
    with closing(sqlite3.connect(filled)) as other:
        other.execute("DROP TRIGGER results_never_change")
        other.commit()
    assert verify(filled).faults == ["SQLite's 'results_never_change' is not as it was made."]


def test_an_address_of_something_else_is_told(filled, make_row):
    """A digest alone can be made right by whoever can write the file; the address is another."""
    fields = {**json.loads(make_row().line), "address": "0" * 64}
    with closing(sqlite3.connect(filled)) as other:
        _insert(other, fields)
    (fault,) = verify(filled).faults
    assert fault == "Row 13: address '0000000000' is not that of its identity and seed."


def _insert(connection, fields):
    """Store a row as any version of Engram has done it."""
    line = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    texts = {
        name: json.dumps(value, sort_keys=True, separators=(",", ":"))
        for name, value in fields.items()
        if isinstance(value, dict)
    }
    columns = {**fields, **texts, "digest": hashlib.sha256(line.encode()).hexdigest()}
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT INTO results ({', '.join(columns)}) VALUES ({marks})"
    connection.execute(statement, list(columns.values()))
    connection.commit()


def test_a_row_that_another_version_stored_is_read(filled, make_row):
    row = make_row(seed=3)
    with closing(sqlite3.connect(filled)) as other:
        _insert(other, json.loads(row.line))
    with Store(filled, read_only=True) as store:
        assert store.rows()[-1] == store.newest(row.address) == row


UNSOUND = [
    ("memory_bytes", 1e308, "outcome.facts.memory_bytes must be a whole number from 0 to 2^63 - 1"),
    ("memory_bytes", -1, "outcome.facts.memory_bytes must be a whole number"),
    ("parameters", 0.5, "outcome.facts.parameters must be a whole number"),
    ("state_bytes", 2**63, "outcome.facts.state_bytes must be a whole number"),
    ("guess_percent", 101, "outcome.facts.guess_percent must be from 0 to 100"),
    ("mine", 1e101, "outcome.facts.mine must be from -1e+100 to 1e+100"),
    ("log_k2_histogram", "99999999999: 1", "outcome.facts.log_k2_histogram must be a bin from"),
    ("log_k2_histogram", "0: " + "9" * 30, "outcome.facts.log_k2_histogram must be a bin from"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), UNSOUND)
def test_a_number_that_no_run_has_is_refused_when_it_is_merged(
    tmp_path, make_row, name, value, sentence
):
    fields = json.loads(make_row().line)
    fields["outcome"]["facts"] = {name: value}
    lines = tmp_path / "bad.jsonl"
    lines.write_text(json.dumps(fields))
    with pytest.raises(EngramError, match=r"^Line 1 of .*bad\.jsonl") as error:
        read_contents(lines)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (["seconds"], 1e308, "seconds must be at least 0 and at most 1e+10"),
        (["versions", "torch"], 2, "versions.torch must be a text"),
        (["outcome", "surprise"], 1, "An outcome has no field 'surprise'"),
        (["identity", "passes"], 0, "identity.passes must be at least 1"),
        (["identity", "numerics"], [1e308], "identity.numerics holds 1e+308"),
        (["identity", "settings", "lead"], 10**40, "identity.settings holds"),
    ],
)
def test_every_number_of_a_row_has_bounds(make_row, place, value, sentence):
    fields = json.loads(make_row().line)
    *way, last = place
    inner = fields
    for name in way:
        inner = inner[name]
    inner[last] = value
    fields["address"] = runs.address(fields["identity"], fields["seed"])
    with pytest.raises(EngramError, match=r"^") as error:
        Row.of(fields)
    assert sentence in str(error.value)


@pytest.mark.parametrize(("name", "value", "sentence"), UNSOUND)
def test_a_run_that_tells_one_is_kept_all_the_same(laboratory, name, value, sentence):
    spec = laboratory.specify("permuted-mnist", "van", tasks=2)
    outcome = dataclasses.replace(laboratory.run(spec, [0])[0], facts={name: value})
    assert record(spec, outcome, "c").outcome["facts"] == {name: repr(value)}, sentence


@pytest.mark.parametrize("fact", [0, 2**63 - 1, 1e15, True, None, "many", [1e99], {"a": 1}])
def test_facts_that_no_average_is_made_of_are_left_alone(make_row, fact):
    fields = json.loads(make_row().line)
    fields["outcome"]["facts"] = {"memory_bytes": fact}
    assert Row.of(fields).outcome["facts"] == {"memory_bytes": fact}


def test_a_store_that_holds_one_is_read_without_it(filled, make_row, caplog):
    with Store(filled) as store:
        before = store.rows()
    older = make_row(seed=9)
    fields = json.loads(make_row(seed=9).line)
    fields["outcome"]["facts"]["memory_bytes"] = 1e308
    with closing(sqlite3.connect(filled)) as other:
        _insert(other, json.loads(older.line))
        _insert(other, fields)
    with Store(filled) as store:
        assert store.rows() == [*before, older]
        assert store.rows() == [*before, older]
        assert store.newest(older.address) == older
    (told,) = caplog.messages
    start = f"Row 14 of the store {str(filled)!r} is set aside: outcome.facts.memory_bytes must be"
    assert told.startswith(start)
    (fault,) = verify(filled).faults
    assert fault.startswith("Row 14: outcome.facts.memory_bytes must be a whole number")


def test_a_line_with_a_bit_changed_is_refused(tmp_path, make_row, choice):
    for entry in (make_row(tasks=2), choice):
        lines = tmp_path / f"{type(entry).__name__}.jsonl"
        write_lines([entry], lines)
        content = lines.read_bytes()
        before = read_contents(lines)
        assert [*before.rows, *before.choices] == [entry]
        for bit in range(0, 8 * len(content), 7):  # every place in a byte, all over it
            lines.write_bytes(flipped(content, bit))
            found = attempt(read_contents, lines)
            assert isinstance(found, EngramError) or found == before  # where it is the line's end


def test_a_line_of_before_has_no_digest(tmp_path, make_row, choice):
    row = make_row()
    (tmp_path / "old.jsonl").write_text(f"{row.line}\n{choice.line}\n")
    assert read_contents(tmp_path / "old.jsonl") == ([row], [choice])


def test_step_records_with_a_bit_changed_are_refused(tmp_path, make_row):
    address, store = make_row().address, tmp_path / "store.sqlite"
    steps = {"k2": np.array([1.0, 2.0], np.float32), "task": np.array([0, 1])}
    write_steps(address, store, steps)
    wanted = {name: values.tolist() for name, values in steps.items()}
    path = steps_path(address, store)
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 3):
        path.write_bytes(flipped(content, bit))
        found = attempt(runs.step_records, address, store)
        if isinstance(found, EngramError):
            assert str(path) in str(found)
        else:  # a bit of the padding
            assert {name: values.tolist() for name, values in found.items()} == wanted


def test_damaged_step_records_are_verified(filled, make_row):
    good, bad = make_row(seed=0).address, make_row(seed=1).address
    for address in (good, bad):
        write_steps(address, filled, {"k2": np.ones(3)})
    content = steps_path(bad, filled).read_bytes()
    steps_path(bad, filled).write_bytes(flipped(content, 8 * len(content) - 1))
    found = verify(filled)
    assert [path.stem for path in found.step_files] == [good]
    (fault,) = found.faults
    assert fault.startswith(f"The step records {str(steps_path(bad, filled))!r} are damaged")


def test_step_records_of_before_are_read(tmp_path, make_row):
    from safetensors.numpy import save_file

    address, store = make_row().address, tmp_path / "store.sqlite"
    path = steps_path(address, store)
    path.parent.mkdir()
    save_file({"k2": np.ones(3)}, path, metadata={"format": "steps-1", "address": address})
    assert runs.step_records(address, store)["k2"].tolist() == [1, 1, 1]
