"""A network of one's own at the command line."""

import json
import sys
from itertools import count
from pathlib import Path

import pytest

from engram.app.runs import Store
from engram.app.studies import read_study
from engram.errors import EngramError
from engram.lab import protocol

sys.path.append(str(Path(__file__).parents[1] / "lab"))
from own_networks import TINY, write_network

SMALL = {"tasks": 2, "examples": 20, "seeds": 1, "device": "cpu"}
_names = count()


@pytest.fixture
def network(tmp_path):
    return f"{write_network(tmp_path)}:Tiny"


@pytest.fixture
def ask(tmp_path, engram, executor, quick_figures):  # noqa: ARG001
    """Run or tune in this process; return the exit code and what was printed."""

    def ask(verb, *words, **options):
        options = {"store": tmp_path / "store.sqlite", **SMALL, **options}
        return engram(verb, *words, **{name: options[name] for name in options if options[name]})

    return ask


def stored(tmp_path):
    with Store(tmp_path / "store.sqlite", read_only=True) as store:
        return store.rows()


def test_a_result_says_which_network_it_is_of(ask, network, tmp_path):
    code, out, err = ask("run", "permuted-mnist", "van", network=network)
    assert code == 0, err
    (row,) = stored(tmp_path)
    assert row.identity["network"]["name"] == "Tiny"
    assert row.identity["network"]["source"].startswith("sha256:")
    assert row.outcome["facts"]["network"].endswith(".py:Tiny")
    assert row.outcome["facts"]["parameters"] == 784 * 5 + 5 + 5 * 10 + 10
    assert f"--network {network}" in row.command
    assert "network=Tiny@" in out
    again = ask("run", "permuted-mnist", "van", network=network)
    assert "All of it is in the store already." in again[2]
    (_, shown, _) = ask("results", tasks=0, examples=0, seeds=0, device="")
    assert "van network=Tiny@" in " ".join(shown.split())


def test_another_network_another_argument_or_none_is_another_result(ask, network, tmp_path):
    for given in (["--network", network], ["--network", network, "--network-set", "width=3"], []):
        assert ask("run", "permuted-mnist", "van", *given)[0] == 0
    rows = stored(tmp_path)
    assert len({row.address for row in rows}) == 3
    assert [row.identity.get("network", {}).get("arguments") for row in rows] == [
        {},
        {"width": 3},
        None,
    ]
    (_, listed, _) = ask("results", json=True, tasks=0, examples=0, seeds=0, device="")
    networks = [each.get("network", {}).get("name") for each in json.loads(listed)["results"]]
    assert networks == ["Tiny", "Tiny", None]


def test_a_choice_is_for_the_network_that_it_was_made_with(ask, tmp_path):
    words, mlp = ("permuted-mnist", "ewc"), ("--network", "mlp", "--network-set", "width=4")
    assert ask("tune", *words, *mlp)[0] == 0
    code, _, err = ask("run", *words, tuned=True)
    assert code == 2
    assert "Nothing is chosen for ewc on permuted-mnist" in err
    code, _, err = ask("run", *words, *mlp, tuned=True)
    assert code == 0
    assert stored(tmp_path)[-1].identity["network"]["name"] == "mlp"


def test_a_bad_network_is_one_sentence_before_anything_is_made(ask, tmp_path):
    broken = write_network(tmp_path, TINY.replace("outputs)\n\n", "outputs + 1)\n\n"))
    raises = write_network(tmp_path, TINY.replace("super()", "raise KeyError('no'); super()"))
    for given, sentence in (
        (f"{broken}:Tiny", "must give 10 outputs for each example"),
        (f"{raises}:Tiny", "cannot be made: KeyError in line 8: 'no'."),
        (f"{broken}:Other", "There is no network in"),
        ("nowhere.py:Net", "There is no file 'nowhere.py'"),
        ("mpl", "did you mean 'mlp'?"),
    ):
        code, out, err = ask("run", "permuted-mnist", "van", network=given)
        assert (code, out) == (2, "")
        assert err.startswith("engram: ")
        assert err.count("\n") == 1
        assert sentence in err
    assert not (tmp_path / "store.sqlite").exists()


def test_what_a_network_prints_is_nothing_of_the_output(tmp_path, capsys):
    loud = TINY.replace("super()", "print('made'); super()").replace("return", "print(1); return")
    file = write_network(tmp_path, f"{loud}\n\nprint('read')\n")
    protocol.check_network(protocol.specify("permuted-mnist", "van", network=f"{file}:Tiny"))
    out, err = capsys.readouterr()
    assert (out, set(err.split())) == ("", {"made", "read", "1"})


def test_arguments_need_a_network_and_must_be_its_own(ask, network):
    for given, argument, sentence in (
        (None, "a=1", "--network-set is an argument of a network"),
        (network, "a", "--network-set takes KEY=VALUE, not 'a'."),
        (network, "widht=1", "(did you mean 'width'?)"),
    ):
        words = ("permuted-mnist", "van", "--network-set", argument)
        code, _, err = ask("run", *words, network=given)
        assert code == 2
        assert sentence in err


@pytest.mark.slow
def test_workers_find_the_network(engram, network, tmp_path):
    options = {**SMALL, "seeds": 2, "store": tmp_path / "store.sqlite", "network": network}
    code, _, err = engram("run", "permuted-mnist", "mega-ii", **options)
    assert code == 0, err
    assert [row.identity["network"]["name"] for row in stored(tmp_path)] == ["Tiny"] * 2


STUDY = """
title = "Mine"
[[runs]]
benchmark = "permuted-mnist"
methods = ["van"]
tasks = 2
examples = 20
network = "NETWORK"
network_settings = { width = 3 }
"""


def study(tmp_path, network):
    file = tmp_path / f"study_{next(_names)}.toml"
    file.write_text(STUDY.replace("NETWORK", network))
    return file


def test_a_study_names_networks_beside_it_that_are_trusted(tmp_path, ask, network):
    file = Path(network.rpartition(":")[0])
    target = study(tmp_path, f"{file.name}:Tiny")
    with pytest.raises(EngramError, match=r"line 8, network: .* --trust .*/network_\d+\.py\."):
        read_study(str(target))
    (runs,) = read_study(str(target), [file]).runs
    assert runs.specs[0].network.arguments == (("width", 3),)
    _, out, _ = ask("reproduce", str(target), "--dry-run", trust=file, tasks=0, examples=0)
    assert f" van {file.name}:Tiny width=3 " in out
    code, _, err = ask("reproduce", str(target), trust=file, tasks=0, examples=0)
    assert code == 0, err
    (row,) = stored(tmp_path)
    assert row.identity["network"]["arguments"] == {"width": 3}
    assert f"--trust {file}" in row.command


def test_a_study_may_name_a_registered_network_and_mistakes_have_their_line(tmp_path):
    assert read_study(str(study(tmp_path, "mlp"))).runs[0].specs[0].network.name == "mlp"
    with pytest.raises(EngramError, match=r"line 8, network: There is no network 'mpl'"):
        read_study(str(study(tmp_path, "mpl")))
    with pytest.raises(EngramError, match=r"line 8, network: network must be FILE\.py:NAME"):
        read_study(str(study(tmp_path, "os:system")))


def test_a_study_is_run_with_another_network(tmp_path, ask):
    target = tmp_path / "plain.toml"
    target.write_text(STUDY.partition("network")[0])
    words = (str(target), "--network", "mlp", "--network-set", "width=4")
    code, _, err = ask("reproduce", *words, tasks=0, examples=0)
    assert code == 0, err
    assert stored(tmp_path)[0].identity["network"]["arguments"] == {"width": 4}
