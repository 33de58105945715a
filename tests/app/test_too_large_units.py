"""Stacks that a GPU has no room for are trained in parts."""

import json

import pytest
from fake_laboratory import unit_of
from rich.console import Console
from rich.progress import Progress

from engram.cli._pace import Pace
from engram.cli._progress import Bars, Lines
from engram.runs import Checkpoints, execute

LINE = "the GPU has too little memory for all at once. They are trained in two parts."


class Heard:
    def __init__(self):
        self.cuts, self.ends = [], []

    def advanced(self, unit, progress):
        pass

    def cut(self, unit, line):
        self.cuts.append((unit.seeds, line))

    def ended(self, unit, failure):
        self.ends.append((unit.seeds, failure))


@pytest.fixture
def trained(laboratory, store, tmp_path):
    """Train a unit; return who heard of it, what was tried, and how many have failed."""

    def train(fault, seeds):
        given = {"fault": fault, "faulty_seed": "0", "trace": str(tmp_path / "trace")}
        spec = laboratory.specify("permuted-mnist", "van", tasks=2, overrides=given)
        heard, checkpoints = Heard(), Checkpoints.beside(store, 60.0, laboratory)
        failures = execute(
            [unit_of(spec, seeds, record_every=3)],
            store,
            laboratory.run,
            device="cuda",
            command="engram run",
            listener=heard,
            checkpoints=checkpoints,
        )
        assert not checkpoints.folder.exists()
        lines = (tmp_path / "trace").read_text().splitlines()
        return heard, [json.loads(line) for line in lines], failures

    return train


def test_a_stack_is_halved_until_it_fits(trained, store):
    heard, tried, failures = trained("small-gpu", (0, 1, 2, 3, 4))
    assert failures == 0
    assert heard.cuts == [((0, 1, 2, 3, 4), LINE), ((0, 1, 2), LINE)]
    assert heard.ends == [((0, 1), None), ((2,), None), ((3, 4), None)]
    assert [seeds for _, seeds, _, _ in tried] == [
        [0, 1, 2, 3, 4],
        [0, 1, 2],
        [0, 1],
        [2],
        [3, 4],
    ]
    workers = [pid for _, _, pid, _ in tried]
    assert len(set(workers)) == 3  # none goes on with memory that it may still hold
    assert {row.seed for row in store.rows()} == {0, 1, 2, 3, 4}
    assert all("recorded_steps" in row.outcome["facts"] for row in store.rows())


def test_a_run_for_which_there_is_no_room_alone_fails_and_takes_no_other_with_it(trained, store):
    heard, _, failures = trained("tiny-gpu", (0, 1, 2))
    assert failures == 1
    assert [seeds for seeds, _ in heard.cuts] == [(0, 1, 2), (0, 1)]
    failed = dict(heard.ends)
    assert failed.pop((0,)).endswith("CUDA out of memory.")
    assert failed == {(1,): None, (2,): None}
    assert {row.seed for row in store.rows()} == {1, 2}


def test_the_pace_forgets_what_was_given_up(laboratory):
    now = [0.0]
    unit = unit_of(laboratory.specify("permuted-mnist", "van"), (0, 1))
    pace = Pace([unit], lambda: now[0])
    pace.advance(unit, laboratory.Progress(0, 17, 100, 200))
    now[0] = 10.0
    pace.forget(unit)
    assert pace.share == 0
    assert str(pace) == "0 steps/s"


@pytest.mark.parametrize("bars", [False, True])
def test_a_line_says_why(laboratory, bars, capsys):
    unit = unit_of(laboratory.specify("permuted-mnist", "van"), (0, 1))
    with Progress(console=Console(stderr=True, width=200)) as display:
        listener = Bars(Pace([unit]), display) if bars else Lines(Pace([unit]))
        listener.advanced(unit, laboratory.Progress(0, 17, 100, 200))
        listener.cut(unit, LINE)
        shown = [task.description for task in display.tasks]
    assert shown == (["all 2 runs"] if bars else [])
    assert f"van, 2 seeds: {LINE}" in capsys.readouterr().err
