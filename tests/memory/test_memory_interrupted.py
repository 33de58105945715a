"""Whatever interrupts a change of the memory, wherever, finds it as before or as after."""

from __future__ import annotations

import copy
import sys
from functools import partial

import numpy as np
import pytest
import torch

from engram.errors import EngramError
from engram.memory import ClassRing, ClassSample, Fifo, Ledger, Memory, Reservoir, TensorStorage
from interruptions import interrupted

PACKAGE = "engram.memory"


def batch(start, count):
    numbers = torch.arange(start, start + count)
    return numbers.double().unsqueeze(-1).expand(-1, 2), numbers % 3


def filled(policy, **budget):
    """A memory with a finished task and a current one; ids are numbers."""
    memory = Memory(policy, **budget)
    memory.add(batch(0, 6), tasks=0)
    memory.end_task()
    memory.add(batch(10, 2), tasks=1, tags={"source": "a"})
    return memory


def aged():
    """One whose examples have weights, and that lets some of them go by their age with a change."""
    memory = Memory(Fifo(6), max_age=1)
    memory.add(batch(0, 2), tasks=-1, weights=[1, 2])
    memory.add(batch(10, 3), tasks=0, weights=[3, 4, 5], times=[6, 7, 8])
    return memory


def named(memory):
    """Examples that are held already come back: as they were, as other classes, twice."""
    memory.add(batch(20, 3), tasks=2, ids=[7, "new", "new"])


MEMORIES = {
    "ClassRing": lambda: filled(ClassRing(1)),
    "ClassRing within a budget": lambda: filled(ClassRing(2, include_current=True), max_examples=5),
    "ClassSample within a budget": lambda: filled(ClassSample(4), max_examples=5),
    "Reservoir": lambda: filled(Reservoir(4)),
    "Fifo": lambda: filled(Fifo(4)),
    "Fifo with ages and weights": aged,
}
CHANGES = {
    "add": lambda memory: memory.add(batch(30, 2), tasks=1 if memory.max_age else 0),
    "add by name": named,
    "erase": lambda memory: memory.erase(ids=[5, 7, "none"], reason="withdrawn"),
    "end_task": lambda memory: memory.end_task(),
}


def comparable(value):
    if isinstance(value, dict):
        return {name: comparable(own) for name, own in value.items()}
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    own = value.tolist() if isinstance(value, torch.Tensor | np.ndarray) else value
    return own if own is value else str(own)  # where no number is one, it is the same one


def observed(memory):
    """All that can be seen of a memory, but for when something was erased."""
    state = comparable(memory.state_dict())
    state["erasures"] = [record[1:] for record in memory.erasures]
    return state, memory.nbytes, memory.available


def future(memory):
    """What a memory is after it has gone on, which tells what no state does."""
    memory.add(batch(40, 3), tasks=3)
    memory.erase(ids=[40])
    memory.end_task()
    memory.add(batch(50, 4), tasks=4)
    return observed(memory), comparable(memory.sample(3))


def check_every_line(memory, change):
    after = copy.deepcopy(memory)
    change(after)
    known = [observed(memory), observed(after)]
    futures = [future(copy.deepcopy(memory)), future(after)]
    line, victim = 1, copy.deepcopy(memory)
    while interrupted(partial(change, victim), PACKAGE, line):
        assert observed(victim) in known, f"at line {line}"
        assert not victim._ledger.journal, f"at line {line}"  # nothing of the past is kept
        if line % 3 == 0:  # of every line it would take long
            expected = futures[known.index(observed(victim))]
            assert future(victim) == expected, f"at line {line}"
        line, victim = line + 1, copy.deepcopy(memory)
    assert line > 3


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", MEMORIES)
def test_a_change_is_made_or_not_begun(name, change):
    check_every_line(MEMORIES[name](), CHANGES[change])


def test_a_large_batch_for_a_full_reservoir_is_kept_whole_or_not_at_all():
    """Its examples are decided on together."""
    check_every_line(filled(Reservoir(4)), lambda memory: memory.add(batch(60, 20), tasks=0))


def check_two_lines(memory, change, parts=7):
    after, victim = copy.deepcopy(memory), copy.deepcopy(memory)
    change(after)
    known, lengths = [observed(memory), observed(after)], [len(memory), len(after)]
    futures, lines = [future(copy.deepcopy(memory)), future(after)], 1
    while interrupted(partial(change, victim), PACKAGE, lines):
        lines, victim = lines + 8, copy.deepcopy(memory)
    twice = 0
    for first in range(1 + lines % 5, lines, max(1, lines // parts)):
        second, came = 1 + first % 3, 2
        while came == 2:
            victim = copy.deepcopy(memory)
            came = interrupted(partial(change, victim), PACKAGE, first, second)
            twice += came == 2
            interrupted(partial(len, victim), PACKAGE, 1 + second % 23)  # and while it is finished
            assert len(victim) in lengths, f"at {first} and {second}"
            assert observed(victim) in known, f"at {first} and {second}"
            assert not victim._ledger.journal
            if second % 4 == 0:
                expected = futures[known.index(observed(victim))]
                assert future(victim) == expected, f"at {first} and {second}"
            second += 3
    assert twice > 5  # how many lines there are is up to the version of Python


@pytest.mark.parametrize("change", ["add", "add by name", "erase"])
@pytest.mark.parametrize("name", MEMORIES)
def test_what_is_interrupted_again_while_it_is_undone_is_finished_by_what_comes_next(name, change):
    check_two_lines(MEMORIES[name](), CHANGES[change])


@pytest.mark.parametrize("policy", [ClassRing(2), ClassSample(2), Fifo(4), Reservoir(4)], ids=repr)
def test_so_is_a_change_of_a_ledger_alone(policy):
    def fill(ledger):
        ledger.add(0, [0, 1, 2, 0, 1], ids=[*"abcde"], tags={"source": "x"})

    def change(ledger):
        ledger.add(1, [0, 0, 0, 1, 2], ids=["a", 7, "new", 8, 9])

    def contents(ledger):
        return comparable(ledger.state_dict())

    before = Ledger(policy)
    fill(before)
    once = copy.deepcopy(before)
    change(once)
    again = copy.deepcopy(once)
    change(again)
    states, twice = [contents(ledger) for ledger in (before, once, again)], 0
    for first in range(1, 400, 17):
        second, came = 1 + first % 3, 2
        while came == 2:
            victim = copy.deepcopy(before)
            came = interrupted(partial(change, victim), PACKAGE, first, second)
            twice += came == 2
            if second % 2:
                assert contents(victim) in states[:2], f"at {first} and {second}"
            change(victim)
            assert contents(victim) in states[1:], f"at {first} and {second}"
            second += 3
    assert twice > 5  # how many lines there are is up to the version of Python


@pytest.mark.parametrize("memory", [Memory(ClassRing(2)), Memory(Fifo(9), max_bytes=99)])
def test_a_memory_that_is_interrupted_by_its_first_batch_is_new(memory):
    check_every_line(memory, lambda own: own.add(batch(0, 3), tasks=0))


def during(call, line, ask):
    """Make a call, and ask something in the midst of it, as a signal handler or a debugger may."""
    lines, answers = 0, []

    def trace(frame, event, _):
        nonlocal lines
        if not frame.f_globals["__name__"].startswith(PACKAGE):
            return None
        lines += event == "line"
        if lines == line and not answers:
            try:
                answers.append(ask())
            except EngramError as error:
                answers.append(error)
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(previous)
    return answers


@pytest.mark.parametrize("change", ["add", "add by name", "erase"])
@pytest.mark.parametrize("name", MEMORIES)
def test_what_is_asked_in_the_midst_of_a_change_is_answered_or_refused_and_the_change_goes_on(
    name, change
):
    memory = MEMORIES[name]()
    after = copy.deepcopy(memory)
    CHANGES[change](after)
    known, lengths = [observed(memory), observed(after)], {len(memory), len(after)}
    line, asked, refused = 1, True, 0
    while asked:
        victim = copy.deepcopy(memory)
        question = [lambda: observed(victim), lambda: len(victim), lambda: repr(victim)][line % 3]  # noqa: B023
        asked = during(partial(CHANGES[change], victim), line, question)
        assert observed(victim) == known[1], f"at line {line}"
        for answer in asked:
            if isinstance(answer, EngramError):
                assert "in the midst of a change" in str(answer)
                refused += 1
            elif isinstance(answer, int):
                assert answer in lengths
            elif not isinstance(answer, str):
                assert answer in known
        line += 5
    assert refused > 2


def test_a_ledger_alone_goes_on_as_well():
    before = Ledger(ClassSample(2))
    before.add(0, [0, 1, 2, 0, 1], ids=[*"abcde"])
    after = copy.deepcopy(before)
    after.add(1, [0, 0, 0, 1, 2], ids=["a", 7, "new", 8, 9])
    line, asked, refused = 1, True, 0
    while asked:
        victim = copy.deepcopy(before)
        change = partial(victim.add, 1, [0, 0, 0, 1, 2], ids=["a", 7, "new", 8, 9])
        asked = during(change, line, victim.state_dict)
        assert comparable(victim.state_dict()) == comparable(after.state_dict())
        refused += any(isinstance(answer, EngramError) for answer in asked)
        line += 4
    assert refused > 2


def flagged(name):
    """A memory of which three more batches are unsettled; the second is not valid."""
    memory = MEMORIES[name]()
    for start, valid in [(60, True), (70, False), (80, True)]:
        memory.sample(2)
        prepared = memory.prepare(batch(start, 3), tasks=2, ids=[7, start, "a"])
        memory.file(prepared, valid=torch.tensor(valid))
    return memory


@pytest.mark.parametrize("name", MEMORIES)
def test_what_interrupts_the_settling_is_found_settled(name):
    expected = MEMORIES[name]()
    for start in (60, 70):
        expected.sample(2)
        if start == 60:
            expected.add(batch(start, 3), tasks=2, ids=[7, start, "a"])
    line, victim = 1, flagged(name)
    while interrupted(victim.settle, PACKAGE, line):
        if line % 2:
            assert len(victim) in (len(expected), len(flagged(name)))
            assert victim.settle() in (2, 0)  # 0 where it was about to return
        assert observed(victim) == observed(expected), f"at line {line}"
        assert future(victim) == future(copy.deepcopy(expected)), f"at line {line}"
        line, victim = line + 1, flagged(name)
    assert line > 10


@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("name", MEMORIES)
def test_a_batch_that_is_filed_by_a_flag_is_undone_by_it_whatever_interrupted(name, valid):
    def file(memory):
        prepared = memory.prepare(batch(30, 4), tasks=0, ids=[7, "new", 6, 30])
        memory.file(prepared, valid=torch.tensor(valid))

    before, after = MEMORIES[name](), MEMORIES[name]()
    after.add(batch(30, 4), tasks=0, ids=[7, "new", 6, 30])
    known = [observed(before), observed(after if valid else before)]
    line, victim = 1, MEMORIES[name]()
    while interrupted(partial(file, victim), PACKAGE, line):
        assert observed(victim) in known, f"at line {line}"
        assert not valid or victim.settle() == 0
        assert not victim._ledger.journal
        line, victim = line + 1, MEMORIES[name]()
    assert line > 10


def test_a_state_is_taken_over_or_not():
    state = MEMORIES["Fifo"]().state_dict()
    memory = Memory(Fifo(4), max_bytes=1000)
    memory.add(batch(60, 3), tasks=5)
    check_every_line(memory, lambda own: own.load_state_dict(state))
    check_two_lines(memory, lambda own: own.load_state_dict(state), parts=20)


def test_an_interrupted_sample_leaves_no_draws_of_another_question():
    memory = Memory(Reservoir(100))
    memory.add(batch(0, 100))
    for _ in range(3):
        memory.sample(50)  # some more are drawn ahead
    memory.erase(where=lambda example: example.id >= 10)
    line, victim = 1, copy.deepcopy(memory)
    while interrupted(partial(victim.sample, 5), PACKAGE, line):
        sample = victim.sample(5)
        assert sample.batch[0][:, 0].tolist() == sample.ids
        line, victim = line + 1, copy.deepcopy(memory)


class Interrupts:
    """A generator; what interrupts it comes when it has drawn, as a signal does."""

    def __init__(self, generator):
        self._generator, self.bit_generator = generator, generator.bit_generator

    def random(self, count):
        self._generator.random(count)
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["ClassSample within a budget", "Reservoir"])
def test_chances_that_were_drawn_in_vain_are_drawn_again(name, monkeypatch):
    memory, twin = MEMORIES[name](), MEMORIES[name]()
    with monkeypatch.context() as patch:
        patch.setattr(memory._ledger, "_generator", Interrupts(memory._ledger._generator))
        with pytest.raises(KeyboardInterrupt):
            CHANGES["add"](memory)
    assert observed(memory) == observed(twin)
    assert future(memory) == future(twin)


@pytest.mark.parametrize("name", MEMORIES)
def test_a_storage_that_runs_out_of_memory_leaves_the_ledger_as_it_was(name, monkeypatch):
    memory = MEMORIES[name]()
    before = observed(memory)
    with monkeypatch.context() as patch:

        def fail(*_):
            raise torch.OutOfMemoryError

        patch.setattr(TensorStorage, "stage", fail)
        for change in (CHANGES["add"], CHANGES["erase"]):
            with pytest.raises(torch.OutOfMemoryError):
                change(memory)
            assert observed(memory) == before
    twin = MEMORIES[name]()
    assert future(memory) == future(twin)


def test_a_budget_that_cannot_be_allocated_is_still_the_users():
    memory = Memory(ClassRing(10**15), max_bytes=10**15)
    with pytest.raises(EngramError, match="cannot allocate"):
        memory.add(batch(0, 2), tasks=0)
    memory.max_bytes = 480  # a smaller one, after the first try
    memory.add((torch.zeros(30), torch.zeros(30, dtype=torch.int64)), tasks=0)
    assert len(memory) == 30
    assert memory.nbytes == 480  # of 4 + 8 bytes each: as many as fit, of these examples
