"""Without a GPU, a captured function is the function itself."""

import torch

from engram.lab.engine import CudaGraphFunction


def test_on_a_cpu_every_call_is_a_plain_one_on_what_is_given():
    given = []

    def work(*tensors):
        given.append(tensors)
        return tensors[0] + 1

    replayed = CudaGraphFunction(work)
    calls = [(torch.full((2, 3), float(i)), torch.arange(i)) for i in range(4)]
    results = [replayed(*call) for call in calls]
    assert all(
        mine is ours
        for call, seen in zip(calls, given, strict=True)
        for mine, ours in zip(call, seen, strict=True)
    )
    assert [result.tolist() for result in results] == [[[i + 1.0] * 3] * 2 for i in range(4)]


def test_the_state_that_work_changes_goes_on_when_all_is_forgotten():
    total = torch.zeros(2)
    replayed = CudaGraphFunction(lambda new: total.add_(new).clone())
    seen = []
    for i in range(6):
        if i == 3:
            replayed.forget()
        seen.append(replayed(torch.full((2,), float(i))).tolist())
    assert seen == [[value] * 2 for value in (0.0, 1.0, 3.0, 6.0, 10.0, 15.0)]
