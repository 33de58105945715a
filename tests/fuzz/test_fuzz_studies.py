"""Study files: planned as they say, or refused with one sentence."""

import pytest
from fuzz_cases import attempt, generated, refused
from fuzz_files import NAMES, changes, damaged
from hypothesis import strategies as st

from engram.app.studies import read_study

WHOLE = """title = "Mine"
include = ["k2"]
[[runs]]
benchmark = "permuted-mnist"
methods = ["van", "mega-ii"]
seeds = 2
tasks = 3
examples = 100
record_every = 5
[runs.settings]
learning_rate = 0.1
"""
VALUES = ['"x"', '""', "0", "-1", "1", "2", "3", "0.5", "nan", "inf", "1e400", "true", "2024-01-01"]
VALUES += [
    "[]",
    "[1]",
    '["x"]',
    '["van"]',
    '["van", "van"]',
    "{}",
    "{a = 1}",
    '{learning_rate = "x"}',
]
VALUES += [
    '"\\u0000"',
    '"\\ud800"',
    '"a\\nb"',
    "9" * 5000,
    "0x" + "f" * 5000,
    '"""\n"""',
    "[" * 3000,
]
VALUES += ['"permuted-mnist"', '"split-cifar"', '"table:x.csv"', "{learning_rate = -1}"]
FIELDS = ["title", "include", "benchmark", "methods", "seeds", "tasks", "examples", "record_every"]
FIELDS += ["learning_rate", "[runs.settings]\nepsilon", "no such", '"a\\nb"', "title.title", "runs"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("studies")


def _check(path):
    study = attempt(lambda: read_study(str(path)))
    if not refused(study):
        assert study.runs
        assert all(spec.tasks >= 1 for each in study.runs for spec in each.specs)


@generated(150, changes=changes)
def test_a_damaged_study_is_read_or_refused(place, changes):
    path = place / "damaged.toml"
    path.write_bytes(damaged(WHOLE.encode(), changes))
    _check(path)


FITTING = {
    "title": ['"x"', '""', '"a\\nb"'],
    "include": ['["k2", "k2"]'],
    "benchmark": ['"permuted-mnist"', '"split-cifar"', '"many-permutations-30"'],
    "methods": ['["van"]', '["mega-i", "gem"]'],
    "seeds": ["1", "9223372036854775807"],
    "tasks": ["1", "20"],
    "examples": ["1", "200"],
    "record_every": ["1", "2147483647"],
    "learning_rate": ["1", "0.5", '"0.5"', "1e-300"],
}
fields = st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(VALUES), max_size=2)
fitting = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in FITTING.items()})


@generated(150, fields=st.builds(lambda good, bad: good | bad, fitting, st.just({}) | fields))
def test_a_study_of_other_fields_is_read_or_refused(place, fields):
    lines = [line.partition(" = ") for line in WHOLE.splitlines()]
    made = [f"{name}{equals}{fields.pop(name, value)}" for name, equals, value in lines]
    path = place / "changed.toml"
    path.write_text("\n".join([*made, *(f"{name} = {value}" for name, value in fields.items())]))
    _check(path)


@generated(
    25,
    name=st.sampled_from(NAMES),
    ending=st.sampled_from(["", ".toml"]),
)
def test_what_is_no_study_is_refused(place, monkeypatch, name, ending):
    monkeypatch.chdir(place)
    assert refused(attempt(lambda: read_study(f"{name}{ending}")))
