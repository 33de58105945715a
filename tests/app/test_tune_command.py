"""``engram tune`` chooses, ``engram run --tuned`` uses it, ``engram results`` shows it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from engram.app.runs import Store

HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "store.sqlite"


@pytest.fixture
def search(path, engram, laboratory, executor):  # noqa: ARG001
    """Tune; return the exit code and what was printed."""

    def search(method="mega-i", **options):
        options = {"device": "cpu", "store": path, **options}
        return engram("tune", "permuted-mnist", method, **options)

    return search


def choices(path):
    with Store(path, read_only=True) as store:
        return store.choices()


def lines(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_best_of_the_grid_is_chosen_printed_and_stored_with_every_trial(search, path):
    code, out, _ = search(seeds=2, tasks=1)
    assert code == 0
    # A task has 90 when learned, a seed costs 1, mega-i 0.2, the wrong epsilon 10.
    assert lines(out)[3:6] == [
        "0.1 79.30 ± 0.50 runner-up",
        "0.01 89.30 ± 0.50 chosen",
        "0.001 79.30 ± 0.50",
    ]
    usage = f"engram run permuted-mnist mega-i --tuned --store {path}"
    assert out.splitlines()[-1] == f"Chosen: epsilon=0.01. To use it: {usage}"
    (choice,) = choices(path)
    assert choice.chosen == {"epsilon": 0.01}
    assert (choice.seeds, choice.device) == (2, "cpu")
    assert choice.identity["tasks"] == 1
    assert "epsilon" not in choice.identity["settings"]
    assert choice.identity["settings"]["learning_rate"] == 0.1
    with Store(path) as store:
        rows = store.rows()
    assert {row.identity["split"] for row in rows} == {"tuning"}
    assert sorted((row.identity["settings"]["epsilon"], row.seed) for row in rows) == [
        (epsilon, seed) for epsilon in (0.001, 0.01, 0.1) for seed in (0, 1)
    ]


@pytest.mark.parametrize(
    ("lead", "seeds", "remark"),
    [
        # Seeds are 1 apart: of three the standard error is 1 / √3.
        (0.1, 3, None),
        (0.006, 3, None),
        (0.005, 3, "epsilon=0.1, is 0.50 behind, within one standard error (0.58)"),
        (0, 3, "Of equals the smallest is chosen; as good: epsilon=0.1, epsilon=0.01."),
        (0.005, 1, "One seed says nothing of the noise"),
    ],
)
def test_what_the_seeds_do_not_tell_is_said(search, lead, seeds, remark):
    _, out, _ = search(seeds=seeds, settings=(f"lead={lead}",))
    _, told, _ = search(seeds=seeds, settings=(f"lead={lead}",), json=True)
    if remark is None:
        assert json.loads(told)["remark"] is None
    else:
        assert remark in json.loads(told)["remark"]
        assert remark in out
    assert json.loads(told)["chosen"] == {"epsilon": 0.01 if lead else 0.001}


def test_json_is_the_choice_and_nothing_else(search):
    _, out, _ = search(seeds=2, json=True)
    answer = json.loads(out)
    assert [trial["settings"]["epsilon"] for trial in answer["trials"]] == [0.1, 0.01, 0.001]
    assert answer["score"] == answer["trials"][1]["score"]
    assert answer["seeds"] == len(answer["trials"][0]["values"]) == 2


def test_a_second_call_computes_nothing_and_makes_no_second_choice(search, path, tmp_path):
    trace = tmp_path / "trace"
    for _ in range(2):
        assert search(seeds=2, settings=(f"trace={trace}",))[0] == 0
    assert len(trace.read_text().splitlines()) == 6
    assert len(choices(path)) == 1


def test_another_search_is_another_choice_and_going_back_makes_the_first_the_newest(search, path):
    for seeds in (2, 3, 2):
        search(seeds=seeds)
    assert [choice.seeds for choice in choices(path)] == [2, 3, 2]


def test_what_is_given_is_in_the_choice_and_its_command(search, path):
    search(seeds=1, tasks=2, examples=50, passes=4, settings=("lead=0.5",))
    (choice,) = choices(path)
    assert choice.identity["passes"] == 4
    assert choice.identity["settings"]["lead"] == 0.5
    assert choice.command == (
        "engram tune permuted-mnist mega-i --seeds 1 --tasks 2 --examples 50 --passes 4 "
        "--set lead=0.5 --device cpu"
    )


def test_nothing_is_chosen_where_a_run_failed(search, path):
    code, out, err = search(seeds=2, settings=("fault=raise",))
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "Nothing is chosen: the same command tries what failed again."
    assert choices(path) == []


def test_nothing_is_chosen_where_every_trial_diverged(search, path):
    code, _, err = search(seeds=2, settings=("fault=diverge",))
    assert code == 2
    assert "Every trial of mega-i has a seed that diverged" in err
    assert choices(path) == []


@pytest.mark.parametrize(
    ("method", "changes", "sentence"),
    [
        ("mega-ii", {}, "mega-ii declares no settings to tune"),
        ("mega-iii", {}, "no method 'mega-iii'"),
        ("mega-i", {"seeds": 0}, "seeds must be at least 1"),
        ("mega-i", {"settings": ("lead",)}, "KEY=VALUE, not 'lead'"),
        ("mega-i", {"device": "gpu"}, "device must be"),
    ],
)
def test_mistakes_are_refused_before_anything_is_made(search, path, method, changes, sentence):
    code, out, err = search(method, **changes)
    assert (code, out, sentence in err) == (2, "", True)
    assert not path.parent.exists()


@pytest.fixture
def tuned(path, engram, laboratory):  # noqa: ARG001
    """Ask which settings a tuned run would have; return them by method, and what is told."""

    def tuned(*methods, **options):
        words = ["run", "permuted-mnist", *methods, "--tuned", "--help-settings", "--json"]
        code, out, err = engram(*words, device="cpu", store=path, **options)
        if code:
            return err
        listed = json.loads(out)["methods"]
        return {entry["method"]: entry["settings"] for entry in listed}, err

    return tuned


def test_a_tuned_run_has_the_chosen_values_and_others_their_presets(
    search, path, engram, laboratory
):
    search(seeds=2)
    engram("run", "permuted-mnist", "mega-i", "a-gem", "--tuned", device="cpu", store=path, seeds=1)
    with Store(path) as store:
        mega, agem = (row.identity for row in store.rows()[-2:])
    assert mega["settings"] == {**laboratory.usual("mega-i"), "epsilon": 0.01}
    assert agem["settings"] == laboratory.usual("a-gem")
    assert (mega.get("split", "training"), mega["tasks"]) == ("training", 17)


def test_what_is_set_wins_over_what_was_chosen(search, tuned):
    search(seeds=2)
    found, _ = tuned("mega-i", settings=("epsilon=0.5",))
    assert found["mega-i"]["epsilon"] == 0.5


def test_the_newest_choice_is_used_and_told(search, tuned):
    search(seeds=2, tasks=1)
    _, told = tuned("mega-i")
    assert told.startswith("mega-i: epsilon=0.01, chosen on 20")
    assert len(told.splitlines()) == 1
    search(seeds=1, passes=2, settings=("lead=0",))
    assert tuned("mega-i")[0]["mega-i"]["epsilon"] == 0.01  # made with this run's other settings
    found, told = tuned("mega-i", settings=("lead=0",))
    assert found["mega-i"]["epsilon"] == 0.001
    assert told.startswith("mega-i: epsilon=0.001, of 2 choices the newest, made on 20")
    assert told.endswith("from 3 trials of 3 tasks of 55,000 examples, 2 passes, 1 seed.\n")
    assert len(told.splitlines()) == 1


def test_a_choice_with_as_many_examples_goes_before_a_newer_one(search, tuned):
    search(seeds=1, examples=200)
    search(seeds=1, settings=("lead=0",))
    for examples, epsilon in ((200, 0.01), (None, 0.001), (300, 0.001)):
        found, told = tuned("mega-i", **({} if examples is None else {"examples": examples}))
        assert found["mega-i"]["epsilon"] == epsilon
        assert ("of 2 choices the newest with as many examples" in told) == (examples != 300)


def test_what_is_set_needs_no_choice(tuned):
    found, _ = tuned("mega-i", settings=("epsilon=0.5",))
    assert found["mega-i"]["epsilon"] == 0.5


def test_a_choice_is_for_its_own_method(search, path, tuned):
    search("van", seeds=2)
    command = shlex.join(["engram", "tune", "permuted-mnist", "mega-i", "--store", str(path)])
    nothing = f"Nothing is chosen for mega-i on permuted-mnist in {str(path)!r}"
    assert tuned("van", "mega-i").endswith(f"engram: {nothing}: `{command}` does it.\n")


def test_without_a_store_there_is_no_choice_and_none_is_made(tmp_path, monkeypatch, engram):
    monkeypatch.chdir(tmp_path)
    code, out, err = engram("run", "permuted-mnist", "mega-i", "--tuned")
    assert (code, out) == (2, "")
    assert err.endswith(
        " in 'engram-results/store.sqlite': `engram tune permuted-mnist mega-i` does it.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_command_of_a_tuned_run_says_so(search, path, engram):
    search(seeds=1)
    options = {"seeds": 1, "tasks": 2, "device": "cpu", "store": path}
    engram("run", "permuted-mnist", "mega-i", "--tuned", **options)
    with Store(path) as store:
        row = store.rows()[-1]
    assert row.command == (
        "engram run permuted-mnist mega-i --seeds 1 --tasks 2 --tuned --device cpu"
    )
    assert row.identity["settings"]["epsilon"] == 0.01


def test_choices_are_shown_exported_and_merged(search, path, tmp_path, engram):
    search(seeds=2, tasks=1)
    exported = tmp_path / "all.jsonl"
    _, out, err = engram("results", "--store", path, "--export", exported)
    assert f"6 results and 1 choice are in {exported}." in err
    (line,) = [line for line in lines(out) if line.startswith("permuted-mnist mega-i")]
    day = choices(path)[0].created[:10]
    told = "3 1 task of 55,000 examples, 2 seeds"
    assert line == f"permuted-mnist mega-i epsilon=0.01 89.30 ± 0.50 {told} {day}"
    other = tmp_path / "other.sqlite"
    for new in (1, 0):
        _, out, err = engram("results", "--store", other, "--merge", exported, "--json")
        assert f"{new} of 1 choices were new and are stored." in err
        (listed,) = json.loads(out)["choices"]
        assert listed["chosen"] == {"epsilon": 0.01}
    assert choices(other) == choices(path)


_COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import engram.app.cli, fake_laboratory
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
engram.app.cli.main()
"""


@pytest.mark.slow
def test_workers_find_the_data_folder_and_no_command_tells_it(tmp_path, path):
    folder = tmp_path / "my data"
    folder.mkdir()
    words = ["tune", "permuted-mnist", "van", "--seeds", "1", "--device", "cpu", "--json"]
    options = ["--data", str(folder), "--store", str(path)]
    command = [sys.executable, "-c", _COMMAND, str(HERE), *words, *options]
    subprocess.run(command, capture_output=True, check=True)
    with Store(path) as store:
        rows, (choice,) = store.rows(), store.choices()
    assert {row.outcome["facts"]["data"] for row in rows} == {str(folder)}
    assert {choice.command, *(row.command for row in rows)} == {
        "engram tune permuted-mnist van --seeds 1 --device cpu"
    }
