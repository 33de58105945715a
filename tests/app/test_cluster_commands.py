"""Where runs are trained: as it is typed, written into a study, shown before anything is run."""

import re
import tomllib
from pathlib import Path

import pytest

from engram.app.runs import LOCAL, Cluster, Store
from engram.app.studies import read_study
from engram.errors import EngramError

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
STUDY = """
title = "Mine"

[executor]
name = "slurm:gpu"
workers = 16
gpus_per_worker = 1
shared = "/nfs/engram"
slurm = { account = "physics", timeout_min = 600 }

[[runs]]
benchmark = "permuted-mnist"
methods = ["van"]
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return read_study(str(path))

    return read


def test_a_study_may_say_where_it_is_trained(read):
    options = {"account": "physics", "timeout_min": 600}
    shared = Path("/nfs/engram")
    assert read(STUDY).cluster == Cluster("slurm:gpu", 16, 1, shared, slurm=options)
    assert read(re.sub(r"\[executor\][^\[]*", "", STUDY)).cluster == LOCAL


@pytest.mark.parametrize(
    ("was", "is_now", "line", "sentence"),
    [
        ("workers = 16", "wrokers = 16", 6, "did you mean 'workers'?"),
        ("workers = 16", "workers = 0", 6, "workers must be a whole number of at least 1, not 0"),
        ("gpus_per_worker = 1", "gpus_per_worker = true", 7, "must be a number from 0 to 1"),
        ('"physics"', "[1]", 9, "slurm must be a table of whole numbers and texts"),
        ('shared = "/nfs/engram"', "shared = 1", 8, "shared must be a text, not 1"),
    ],
)
def test_a_mistake_is_told_with_its_line(read, was, is_now, line, sentence):
    with pytest.raises(EngramError, match=rf"mine\.toml, line {line}, .*{re.escape(sentence)}"):
        read(STUDY.replace(was, is_now))


@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["--executor", "rey"], "There is no executor 'rey'; valid are local, ray[:ADDRESS]"),
        (["--workers", "3"], "are for an executor that is not local"),
        (["--executor", "slurm", "--workers", "2"], "give it with --shared"),
        (["--executor", "ray://10.0.0.5:10001"], "is the address of Ray's client: give that of"),
        (["--executor", "slurm", "--slurm", "account"], "--slurm takes KEY=VALUE, not 'account'"),
        (["--slurm", "time=9", "--slurm", "time=5"], "--slurm gives 'time' twice"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_else(engram, tmp_path, typed, sentence):
    store = tmp_path / "store.sqlite"
    for words in (
        ["run", "permuted-mnist", "van"],
        ["reproduce", "k2"],
        ["tune", "permuted-mnist", "van"],
    ):
        code, _, err = engram(*words, *typed, "--store", store)
        assert (code, sentence in err, err.count("\n")) == (2, True, 1), err
    assert not store.exists()


def test_a_dry_run_says_how_long_so_many_workers_take(ask_study, study, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    words = {"dry_run": True, "executor": "slurm", "shared": tmp_path, "device": "auto"}
    target = study()
    one = ask_study(target, **words, workers=1)
    five = ask_study(target, **words, workers=5)
    assert "8 of 8 runs to do on cpu, on slurm with 1 worker" in " ".join(one.out.split())
    assert "on slurm with 5 workers" in " ".join(five.out.split())


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_pages_study_is_one(read):
    (text,) = blocks("toml")
    assert read(text).cluster.workers == 16
    assert tomllib.loads(text)["executor"]["name"] == "slurm:gpu"


@pytest.mark.slow
def test_the_pages_python_stores_what_it_says(tmp_path, monkeypatch, capsys):
    (code,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "__page__"})
    with Store(tmp_path / "store.sqlite") as store:
        assert {row.seed for row in store.rows()} == {0, 1}
    assert "stored, 2 of 2" in capsys.readouterr().err
