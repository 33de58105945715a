"""The conformance kit for policies: what a memory builds on, a check for each."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.memory import Memory, Policy, Sample, TensorStorage
from engram.memory.policies import check_policy as check_kind
from engram.memory.policies import policy_named
from engram.memory.storage import Staged
from engram.testing.assertions import equal, require

_CLASSES = 3
_TASKS = 3
_EXAMPLES = 40  # of a task
_FEATURES = 6
_GIVEN = {"per_class": 5, "capacity": 20}


def check_policy(policy: Policy | str, **fields: Any) -> list[str]:  # noqa: ANN401
    """Check a policy, or the one of a name with these fields; return the checks done.

    ``per_class`` and ``capacity`` are 5 and 20 where a named policy has them, unless given. A
    promise that is not kept raises an AssertionError that says which one and where.

    >>> check_policy("reservoir")
    ['kind', 'seeded', 'batches', 'bounded', 'ledger', 'erased', 'undone', 'resumed', 'saved']
    """
    if isinstance(policy, str):
        policy = policy_named(policy, **{**_GIVEN, **fields})
    if not isinstance(policy, Policy):
        raise EngramError(f"policy must be the name of one, or a Policy, not {shown(policy)}.")
    checks: dict[str, Callable[[Policy], None]] = {
        "kind": _kind,
        "seeded": _seeded,
        "batches": _batches,
        "bounded": _bounded,
        "ledger": _ledger,
        "erased": _erased,
        "undone": _undone,
        "resumed": _resumed,
        "saved": _saved,
    }
    for check in checks.values():
        try:
            check(policy)
        except AssertionError as broken:
            raise AssertionError(f"{policy!r} {broken}") from broken
    return list(checks)


def _task(task: int) -> tuple[Tensor, Tensor]:
    """Return a task's examples and their classes."""
    source = torch.Generator().manual_seed(task)
    labels = torch.randint(_CLASSES, (_EXAMPLES,), generator=source)
    return torch.randn(_EXAMPLES, _FEATURES, generator=source) + labels.unsqueeze(-1), labels


def _teach(memory: Memory, tasks: range, size: int = 7) -> Memory:
    """Add tasks, batch by batch."""
    for task in tasks:
        inputs, labels = _task(task)
        for start in range(0, _EXAMPLES, size):
            part = slice(start, start + size)
            memory.add((inputs[part], labels[part]), tasks=task)
        memory.end_task()
    return memory


def _content(memory: Memory) -> dict[str, Any]:
    """Return what is held, and what is drawn of it next."""
    held = [(each.id, each.task, each.label) for each in memory.examples()]
    drawn = memory.sample(memory.available) if memory.available else None
    return {"held": held, "drawn": None if drawn is None else (drawn.ids, drawn.batch)}


def _drawn(memory: Memory) -> Sample:
    drawn = memory.sample(memory.available)
    require(drawn is not None, "keeps nothing that can be sampled.")
    assert drawn is not None
    return drawn


def _kind(policy: Policy) -> None:
    try:
        check_kind(policy)
    except EngramError as error:
        raise AssertionError(f"is refused by a memory: {error}") from error


def _seeded(policy: Policy) -> None:
    ours, theirs = (_content(_teach(Memory(policy, seed=3), range(_TASKS))) for _ in range(2))
    require(equal(ours, theirs), "keeps other examples when it is run again with the same seed.")


def _batches(policy: Policy) -> None:
    ours, theirs = (
        _content(_teach(Memory(policy, seed=3), range(_TASKS), size)) for size in (7, _EXAMPLES)
    )
    require(
        equal(ours["held"], theirs["held"]) or sorted(ours["held"]) == sorted(theirs["held"]),
        "keeps other examples where they come in batches of another size.",
    )


def _bounded(policy: Policy) -> None:
    for most in (None, 11):
        memory = Memory(policy, max_examples=most)
        for task in range(_TASKS):
            _teach(memory, range(task, task + 1), 1 if task else 7)
            groups = Counter((each.task, each.label) for each in memory.examples())
            largest = max(groups.values()) if policy.by_class else len(memory)
            require(
                largest <= policy.group_limit,
                f"lets a group hold {largest} examples, and its group_limit is "
                f"{policy.group_limit}.",
            )
            require(
                most is None or len(memory) <= most,
                f"holds {len(memory)} examples in a memory of {most}.",
            )
        require(len(memory) > 0, "keeps nothing.")


def _ledger(policy: Policy) -> None:
    memory = _teach(Memory(policy, seed=1), range(_TASKS))
    drawn = _drawn(memory)
    require(len(set(drawn.ids)) == len(drawn.ids), "gives an example twice in one sample.")
    tasks = [_task(task) for task in range(_TASKS)]
    inputs, labels = (torch.cat(part) for part in zip(*tasks, strict=True))
    for place, id in enumerate(drawn.ids):
        right = torch.equal(drawn.batch[0][place], inputs[int(id)])
        require(
            right and int(drawn.batch[1][place]) == int(labels[int(id)]),
            "gives an example back under another one's number.",
        )
    memory.add((inputs[:1], labels[:1]), tasks=_TASKS, ids=["new"])
    at_once = "new" in _drawn(memory).ids
    if "new" in {each.id for each in memory.examples()}:
        require(
            at_once == policy.include_current,
            f"lets an example of a task be sampled {'before' if at_once else 'only after'} its "
            f"end, and its include_current is {policy.include_current}.",
        )


def _erased(policy: Policy) -> None:
    memory = _teach(Memory(policy, seed=2), range(_TASKS))
    before = {each.id for each in memory.examples()}
    gone = sorted(before)[::2]
    memory.erase(ids=gone, reason="checked")
    left = {each.id for each in memory.examples()}
    require(left == before - set(gone), "erases other examples than those asked for.")
    inputs, labels = _task(0)
    memory.add((inputs, labels), tasks=0, ids=list(range(_EXAMPLES)))
    memory.end_task()
    back = {each.id for each in memory.examples()} & set(gone)
    require(not back, "takes examples back that were erased.")
    _teach(memory, range(_TASKS, _TASKS + 1))


class _Full(TensorStorage):
    """A storage that has no room once it is full."""

    full = False

    def stage(self, *given: Any) -> Staged:  # noqa: ANN401
        """Refuse, or do as ever."""
        if self.full:
            raise MemoryError
        return super().stage(*given)


def _undone(policy: Policy) -> None:
    storage = _Full()
    memory, twin = Memory(policy, storage, seed=5), Memory(policy, seed=5)
    for each in (memory, twin):
        _teach(each, range(2))
    storage.full = True
    with suppress(MemoryError):
        memory.add(_task(2), tasks=2)
    storage.full = False
    require(equal(_content(memory), _content(twin)), "leaves a trace of a batch that was undone.")
    for each in (memory, twin):
        _teach(each, range(2, _TASKS))
    require(
        equal(_content(memory), _content(twin)),
        "goes on otherwise after a batch that was undone.",
    )


def _resumed(policy: Policy) -> None:
    memory = _teach(Memory(policy, seed=4), range(1))
    loaded = Memory(policy)
    loaded.load_state_dict(memory.state_dict())
    ours, theirs = (_content(_teach(each, range(1, _TASKS))) for each in (memory, loaded))
    require(equal(ours, theirs), "goes on otherwise when its state is loaded.")


def _saved(policy: Policy) -> None:
    memory = _teach(Memory(policy, seed=4), range(1))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory"
        memory.save(file)
        loaded = Memory.load(file)
    require(loaded.policy == policy, f"is loaded from a file as {loaded.policy!r}.")
    ours, theirs = (_content(_teach(each, range(1, _TASKS))) for each in (memory, loaded))
    require(equal(ours, theirs), "goes on otherwise when it is loaded from a file.")
