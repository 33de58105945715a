"""Stacks that a GPU has no room for are trained in parts."""

import json
import os
import signal

import pytest
from fake_laboratory import unit_of

from engram.app.runs import Checkpoints, Terminated, execute
from listeners import Heard

LINE = "the GPU has too little memory for all at once. They are trained in two parts."


@pytest.fixture
def unit(laboratory, tmp_path):
    """Make a unit that goes wrong."""

    def make(fault, seeds, **more):
        given = {"fault": fault, "faulty_seed": str(seeds[0]), "trace": str(tmp_path / "trace")}
        given |= more
        spec = laboratory.specify("permuted-mnist", "van", tasks=2, overrides=given)
        return unit_of(spec, seeds, record_every=3, deterministic=True)

    return make


@pytest.fixture
def checkpoints(store):
    return Checkpoints(store, 60.0)


@pytest.fixture
def trained(laboratory, store, tmp_path):
    """Train a unit; return who heard of it, what was tried, and how many have failed."""

    def train(unit):
        heard = Heard()
        failures = execute(
            [unit],
            store,
            laboratory.run,
            device="cuda",
            command="engram run",
            listener=heard,
            checkpoint_every=60.0,
        )
        lines = (tmp_path / "trace").read_text().splitlines()
        return heard, [json.loads(line) for line in lines], failures

    return train


def test_a_stack_is_halved_until_it_fits(unit, trained, store, checkpoints):
    heard, tried, failures = trained(unit("small-gpu", (0, 1, 2, 3, 4)))
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
    assert all(row.outcome["facts"]["deterministic"] for row in store.rows())
    assert not checkpoints.folder.exists()


def test_where_there_is_no_room_for_one_run_none_is_tried_after_it(unit, trained, store):
    heard, tried, failures = trained(unit("tiny-gpu", tuple(range(8))))
    assert failures == 4
    assert [seeds for _, seeds, _, _ in tried] == [[*range(8)], [*range(4)], [0, 1], [0]]
    assert [seeds for seeds, _ in heard.ends] == [(0,), (1,), (2, 3), (4, 5, 6, 7)]
    assert all(reason.endswith("CUBLAS_STATUS_ALLOC_FAILED") for _, reason in heard.ends)
    assert store.rows() == []


def test_what_was_saved_of_a_whole_stack_is_kept(unit, trained, checkpoints, laboratory):
    whole = unit("tiny-gpu", (0, 1, 2))
    path = checkpoints.path(whole, "cuda")
    laboratory.Checkpoint(path).save(whole.specs, whole.seeds)
    heard, tried, failures = trained(whole)
    assert (failures, len(tried), heard.cuts) == (1, 1, [])
    assert heard.ends[0][1].endswith(
        "What was saved stays; fewer seeds at a time need less memory."
    )
    assert path.exists()


def test_of_a_stack_whose_process_dies_twice_the_run_that_does_it_is_set_aside(
    unit, trained, store
):
    heard, tried, failures = trained(unit("kill", (0, 1, 2)))
    assert failures == 1
    assert [(seeds, reason is None) for seeds, reason in heard.ends] == [
        ((0,), False),
        ((1,), True),
        ((2,), True),
    ]
    assert [seeds for _, seeds, _, _ in tried] == [
        *([[0, 1, 2]] * 2),
        *([[0, 1]] * 2),
        *([[0]] * 2),
        [1],
        [2],
    ]
    assert {row.seed for row in store.rows()} == {1, 2}


@pytest.mark.parametrize("saved", [(0, 1), (2,), (1, 2, 3), (3, 4)])
def test_what_was_saved_of_a_part_is_gone_on_with(saved, unit, trained, checkpoints, laboratory):
    whole, part = unit("", (0, 1, 2, 3, 4)), unit("", (0, 1, 2, 3, 4)).part(saved[0], saved[-1] + 1)
    laboratory.Checkpoint(checkpoints.path(part, "cuda")).save(part.specs, part.seeds)
    _, tried, failures = trained(whole)
    others = [seed for seed in range(5) if seed not in saved]
    parts = [[*saved], [each for each in others if each < saved[0]]]
    parts.append([each for each in others if each > saved[0]])
    assert failures == 0
    assert [(seeds, resumed) for _, seeds, _, resumed in tried] == [
        (seeds, seeds == [*saved]) for seeds in sorted(parts) if seeds
    ]
    assert not checkpoints.folder.exists()


def test_what_was_saved_of_others_cuts_nothing(unit, trained, checkpoints, laboratory):
    for seeds in ((7,), (1, 3), (4, 5)):
        other = unit("", seeds)
        laboratory.Checkpoint(checkpoints.path(other, "cuda")).save(other.specs, seeds)
    alike = unit("", (1, 2))  # but not of this device
    laboratory.Checkpoint(checkpoints.path(alike, "cpu")).save(alike.specs, alike.seeds)
    _, tried, _ = trained(unit("", (0, 1, 2, 3, 4)))
    assert [seeds for _, seeds, _, _ in tried] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("fault", ["handler", "handled", "circle", "capture"])
def test_an_error_of_its_own_is_told_at_once(fault, unit, trained):
    heard, tried, failures = trained(unit(fault, (0, 1, 2)))
    assert (failures, len(tried), heard.cuts) == (1, 1, [])
    assert "a bug of its own" in heard.ends[0][1]


def test_who_is_stopped_is_not_cut(unit, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(Heard, "advanced", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    heard = []
    monkeypatch.setattr(Heard, "cut", lambda *event: heard.append(event))
    monkeypatch.setattr(Heard, "ended", lambda *event: heard.append(event))
    with pytest.raises(Terminated):
        trained(unit("deaf-small-gpu", (0, 1, 2), sleep="1"))
    assert heard == []
    assert len((tmp_path / "trace").read_text().splitlines()) == 1
