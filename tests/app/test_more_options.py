"""Step records, TensorBoard, and questions to the store."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engram.app.report import check_log_folder, measure, write_scalars
from engram.app.runs import Store, address, step_records, write_steps
from engram.app.studies import study_names
from engram.errors import EngramError


@pytest.mark.slow
def test_the_steps_of_a_real_run_are_kept_beside_the_store(tmp_path):
    words = ["run", "permuted-mnist", "mega-i", "--tasks", "2", "--examples", "50", "--seeds", "1"]
    options = ["--record", "steps", "--record-every", "2", "--device", "cpu", "--json"]
    command = [Path(sys.executable).parent / "engram", *words, *options]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    store = tmp_path / "engram-results" / "store.sqlite"
    with Store(store) as opened:
        (row,) = opened.rows()
    assert row.command.endswith("--record steps --record-every 2 --device cpu")
    assert row.outcome["facts"]["recorded_steps"] == 6
    steps = step_records(row.address, store)
    assert steps["task"].tolist() == [0, 0, 0, 1, 1, 1]
    assert steps["step"].tolist() == [1, 3, 4, 1, 3, 4]
    assert np.isnan(steps["k2"][:3]).all()
    assert (steps["k2"][3:] > 0).all()
    assert np.allclose(steps["k1"][3:], steps["current_loss"][3:] / steps["reference_loss"][3:])
    damaged = store.with_name("store-steps") / f"{row.address}.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(EngramError, match="cannot be read"):
        step_records(row.address, store)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--record", "everything"], "record must be steps, not 'everything'"),
        (["--record", "steps", "--record-every", "0"], "record-every must be from 1"),
    ],
)
def test_what_cannot_be_recorded_is_refused(words, sentence, tmp_path, monkeypatch, engram):
    monkeypatch.chdir(tmp_path)
    code, _, err = engram("run", "permuted-mnist", "van", *words)
    assert (code, sentence in err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_the_help_names_every_study(engram):
    lines = engram("reproduce", "--help").out
    text = " ".join(lines.split()).replace("- ", "-")  # a line may end after a hyphen
    assert all(name in text for name in study_names())


@pytest.mark.usefixtures("laboratory", "executor")
def test_recording_is_part_of_the_command(engram, tmp_path):
    words = ["run", "permuted-mnist", "van", "--seeds", "1", "--tasks", "2", "--device", "cpu"]
    commands = []
    for more in ([], ["--record", "steps"]):
        path = tmp_path / f"{len(more)}.sqlite"
        assert engram(*words, *more, "--store", path).code == 0
        with Store(path) as store:
            commands += [row.command for row in store.rows()]
    plain, recorded = commands
    assert "--record" not in plain
    assert "--record steps --device" in recorded


@pytest.fixture
def held(tmp_path, make_row):
    """A store of two methods, one of which has a seed that diverged."""
    path = tmp_path / "store.sqlite"
    rows = [make_row("van", seed) for seed in range(2)]
    rows += [make_row("mega-i", seed, fault="diverge", faulty_seed=1) for seed in range(2)]
    rows += [make_row("van", 0, tasks=2)]
    with Store(path) as store:
        store.add(rows)
    return path, rows


def test_results_are_asked_for_by_method_benchmark_split_and_device(held, engram):
    path, _ = held

    def asked(**names):
        code, out, err = engram("results", "--store", path, "--json", **names)
        if code:
            return err
        entries = json.loads(out)["results"]
        return [(entry["method"], entry["tasks"]) for entry in entries]

    every = [("van", 3), ("mega-i", 3), ("van", 2)]
    assert asked() == asked(split="training", device="cpu", benchmark="permuted-mnist") == every
    assert asked(method="van") == [("van", 3), ("van", 2)]
    for name, value, hint in (
        ("method", "mega-ii", "did you mean 'mega-i'"),
        ("split", "tuning", "valid are training"),
        ("device", "cuda", "valid are cpu"),
        ("benchmark", "mnist", "valid are permuted-mnist"),
    ):
        refused = asked(**{name: value})
        assert f"no {name} among these results called '{value}'" in refused
        assert hint in refused


def test_own_data_is_asked_for_as_it_was_run(make_row, engram, tmp_path):
    digests = ("42675fa140", "0123456789")
    names = [f"folder-my-photos-{digest}" for digest in digests] + [f"table-sales-{digests[0]}"]
    names += [f"folder-my-photos-old-{digests[0]}"]
    rows = [replace(row, identity={**row.identity, "benchmark": name})
            for row, name in ((make_row("van", 0), name) for name in names)]  # fmt: skip
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        store.add([replace(row, address=address(row.identity, row.seed)) for row in rows])

    def asked(benchmark):
        code, out, err = engram("results", "--store", path, "--csv", "--benchmark", benchmark)
        if code:
            return err
        return [line["benchmark"] for line in csv.DictReader(io.StringIO(out))]

    for mine in ("folder:My Photos", "folder:/elsewhere/my photos/", "folder-my-photos"):
        assert asked(mine) == names[:2]
    assert asked("table:sales.csv") == asked("table-sales") == asked(names[2]) == names[2:3]
    for part in ("folder", "table:", "table:sale.csv", "folder:photos"):
        assert "no benchmark among these results called" in asked(part)
    assert f"'sales' (did you mean '{names[2]}'?)" in asked("sales")


def test_what_is_asked_for_is_what_is_exported(held, engram, tmp_path):
    path, _ = held
    words = ["--method", "mega-i", "--export", tmp_path / "some.jsonl"]
    assert engram("results", "--store", path, *words)[0] == 0
    lines = (tmp_path / "some.jsonl").read_text().splitlines()
    assert [json.loads(line)["identity"]["method"] for line in lines] == ["mega-i"] * 2


def test_csv_has_a_line_for_each_run(held, engram):
    path, rows = held
    _, out, _ = engram("results", "--store", path, "--csv")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert [(line["method"], int(line["seed"])) for line in lines] == [
        (row.identity["method"], row.seed) for row in rows
    ]
    for line, row in zip(lines, rows, strict=True):
        expected = measure(row, "average_accuracy")
        assert line["average_accuracy"] == ("" if expected is None else str(expected))
        assert line["failure"] == (row.outcome["failure"] or "")
        assert (line["address"], line["tasks"]) == (row.address, str(row.identity["tasks"]))
        assert json.loads(line["settings"]) == row.identity["settings"]
    code, _, err = engram("results", "--store", path, "--csv", "--json")
    assert (code, "give one of them" in err) == (2, True)


def test_csv_of_a_row_that_does_not_tell_its_data(make_row, engram, tmp_path):
    """As the oldest ones do not."""
    row = make_row("van")
    identity = {name: value for name, value in row.identity.items() if name != "data"}
    old = replace(row, identity=identity, address=address(identity, row.seed))
    with Store(tmp_path / "s.sqlite") as store:
        store.add([old])
    _, out, _ = engram("results", "--store", tmp_path / "s.sqlite", "--csv")
    (line,) = csv.DictReader(io.StringIO(out))
    assert (line["data"], line["address"]) == ("", old.address)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("＝1", "'＝1"),
        ("-", "'-"),
        ("+1e5x", "'+1e5x"),
        ("-1.5e-3", "-1.5e-3"),
        ("+2", "+2"),
        ("-inf", "-inf"),
        ("nan", "nan"),
        ("a=1", "a=1"),
        ("'=1", "'=1"),
        ("", ""),
    ],
)
def test_no_cell_of_a_csv_is_a_formula(text, written, make_row, engram, tmp_path):
    """Numbers stay numbers, whoever wrote them; of a text a spreadsheet makes nothing."""
    row = make_row("van", tasks=2)
    better = {**row.outcome, "accuracy": [[0.5, None], [0.75, 0.5]]}  # so nothing is forgotten
    with Store(tmp_path / "s.sqlite") as store:
        store.add([replace(row, device=text, outcome=better)])
    _, out, _ = engram("results", "--store", tmp_path / "s.sqlite", "--csv")
    (line,) = csv.DictReader(io.StringIO(out, newline=""))
    assert line["device"] == written
    assert (line["forgetting"], line["seed"], line["seconds"]) == ("-0.25", "0", "1.5")


def test_csv_of_rows_that_others_made(make_row, engram, tmp_path):
    row = make_row("van")
    outcome = {**row.outcome, "failure": "=HYPERLINK(A1)"}
    with Store(tmp_path / "s.sqlite") as store:
        store.add([replace(row, device="@x", outcome=outcome)])
    _, out, _ = engram("results", "--store", tmp_path / "s.sqlite", "--csv")
    (line,) = csv.DictReader(io.StringIO(out))
    assert (line["device"], line["failure"]) == ("'@x", "'=HYPERLINK(A1)")
    assert (line["seed"], line["seconds"]) == ("0", "1.5")


def test_another_store_is_merged_with_its_step_records(held, engram, tmp_path):
    path, rows = held
    steps = {"k2": np.ones(3, np.float32)}
    write_steps(rows[0].address, path, steps)
    target = tmp_path / "mine" / "all.sqlite"
    for new in (5, 0):
        _, _, err = engram("results", "--store", target, "--merge", path)
        assert f"{new} of 5 results were new" in err
    assert step_records(rows[0].address, target)["k2"].tolist() == [1, 1, 1]
    with Store(target) as store:
        assert store.rows() == rows
    code, _, err = engram("results", "--store", path, "--merge", path)
    assert (code, "another store than" in err) == (2, True)
    words = ["--store", tmp_path / "new.sqlite", "--merge", tmp_path / "none.jsonl"]
    code, _, err = engram("results", *words)
    assert (code, "cannot be read" in err) == (2, True)
    assert not (tmp_path / "new.sqlite").exists()


def test_tensorboard_that_is_missing_is_told_before_any_training(tmp_path, monkeypatch, engram):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    words = ["run", "permuted-mnist", "van", "--tensorboard", "logs", "--device", "cpu"]
    code, _, err = engram(*words)
    assert (code, "pip install 'engram-torch[tensorboard]'" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("logs", "reason"),
    [
        ("file", "Not a directory"),
        ("file/logs", "Not a directory"),
        ("nowhere", "No such file or directory"),
        ("n" * 300, "File name too long"),
    ],
)
def test_a_folder_that_tensorboard_cannot_have_is_refused_before_any_training(
    tmp_path, monkeypatch, engram, logs, reason
):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("nowhere").symlink_to("gone")
    code, _, err = engram("run", "permuted-mnist", "van", "--tensorboard", logs, device="cpu")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"engram: Nothing can be written for TensorBoard in '{logs}': ")
    assert reason in err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "nowhere"]


def test_looking_for_a_place_for_tensorboard_leaves_nothing(tmp_path):
    check_log_folder(tmp_path / "new" / "logs")
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_gets_scalars_after_each_task_once(held, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, rows = held
    assert write_scalars(rows, tmp_path / "logs") == 5
    assert write_scalars(rows, tmp_path / "logs") == 0
    name = f"van-seed-1-{rows[1].address[:10]}"
    log = EventAccumulator(str(tmp_path / "logs" / "permuted-mnist-3x55000" / name)).Reload()
    told = {tag: [(e.step, e.value) for e in log.Scalars(tag)] for tag in log.Tags()["scalars"]}
    matrix = rows[1].outcome["accuracy"]
    means = [100 * np.mean(matrix[task][: task + 1]) for task in range(3)]
    assert told["average accuracy"] == [(n + 1, pytest.approx(m)) for n, m in enumerate(means)]
    assert told["accuracy on the new task"] == [
        (task + 1, pytest.approx(100 * matrix[task][task])) for task in range(3)
    ]
    # A task loses 0.1 with each later one.
    assert told["forgetting"] == [(2, pytest.approx(0.1)), (3, pytest.approx(0.15))]
