"""Data parallel training: two processes with half a batch each are one with the whole batch."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from gradient_oracles import examples, loss_on, network, sgd
from torch import multiprocessing, nn

import engram
from engram.errors import EngramError
from engram.rules import AGEM, GEM, MEGA1, MEGA2

RULES = [AGEM(), MEGA1(), MEGA2(), GEM()]


def half(batch, rank):
    return [tensor.chunk(2)[rank] for tensor in batch]


def train(rule, group=None, rank=None, steps=3):
    """Return the weights after a few steps, and the last mixture."""
    model = network(0)
    optimizer = sgd(model)
    mixer = engram.GradientMixer(optimizer, rule, process_group=group)
    for step in range(steps):
        batches = {"memory": examples(10 + step, 16), "current": examples(step, 4)}
        for row, batch in batches.items():
            part = batch if rank is None else half(batch, rank)
            mixer.backward(loss_on(model, part), row=row)
        mix = mixer.mix()
        optimizer.step()
    return [*(p.detach() for p in model.parameters()), mix.losses, mix.weights]


def reach(group, rank):
    """Return the gradients where each rank uses a head of its own, and one is used by none."""
    torch.manual_seed(0)
    tops = nn.ModuleList(nn.Linear(5, 3, dtype=torch.float64) for _ in range(3))
    mixer = engram.GradientMixer(sgd(tops), AGEM(), process_group=group)
    mixer.backward(loss_on(tops[rank], examples(rank, 4)))
    mixer.mix()
    return [top.weight.grad for top in tops]


def sentence(action):
    with pytest.raises(EngramError) as caught:
        action()
    return str(caught.value)


def missing_row(group, rank):
    model = network(0)
    mixer = engram.GradientMixer(sgd(model), MEGA2(), process_group=group)
    mixer.backward(loss_on(model, examples(0, 4)))
    if rank == 0:
        mixer.backward(loss_on(model, examples(1, 4)), row="memory")
    return sentence(mixer.mix)


def missing_current(group, rank):
    model = network(0)
    mixer = engram.GradientMixer(sgd(model), MEGA2(), process_group=group)
    if rank == 0:
        mixer.backward(loss_on(model, examples(0, 4)))
    return sentence(mixer.mix)


def shared_buffers(rank):
    """Return the error that a wrapper's own buffers would otherwise hide."""
    wrapped = nn.parallel.DistributedDataParallel(network(0), gradient_as_bucket_view=True)
    mixer = engram.GradientMixer(sgd(wrapped), MEGA2())

    def steps():
        for step in range(3):
            for row in ["memory", "current"]:
                mixer.backward(loss_on(wrapped, half(examples(step, 4), rank)), row=row)
            mixer.mix()

    return sentence(steps), sentence(mixer.mix)


def work(rank, path):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=30),
    )
    group = dist.group.WORLD
    try:
        return {
            **{type(rule).__name__: train(rule, group, rank) for rule in RULES},
            "reach": reach(group, rank),
            "missing row": missing_row(group, rank),
            "missing current": missing_current(group, rank),
            "shared buffers": shared_buffers(rank),
        }
    finally:
        dist.destroy_process_group()


def other_rank(folder):
    torch.set_num_threads(1)
    torch.save(work(1, folder / "meeting"), folder / "second")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Return what both ranks computed; this process is the first."""
    folder = tmp_path_factory.mktemp("group")
    process = multiprocessing.get_context("spawn").Process(target=other_rank, args=(folder,))
    process.start()
    own = work(0, folder / "meeting")
    process.join(timeout=30)
    return own, torch.load(folder / "second")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_two_processes_equal_one_with_the_whole_batch(ranks, rule):
    for own in ranks:
        for ours, whole in zip(own[type(rule).__name__], train(rule), strict=True):
            torch.testing.assert_close(ours, whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_all_ranks_take_the_very_same_step(ranks, rule):
    first, second = (own[type(rule).__name__] for own in ranks)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_what_a_rank_does_not_reach_counts_as_zero(ranks):
    torch.manual_seed(0)
    tops = nn.ModuleList(nn.Linear(5, 3, dtype=torch.float64) for _ in range(3))
    for rank in (0, 1):
        loss_on(tops[rank], examples(rank, 4)).backward()
    for own in ranks:
        assert own["reach"][2] is None
        for rank in (0, 1):
            torch.testing.assert_close(own["reach"][rank], tops[rank].weight.grad / 2)


def test_a_row_that_one_rank_lacks_is_an_error_on_all(ranks):
    for rank, rows in enumerate(["['current', 'memory']", "['current']"]):
        assert f"rank {rank} has the rows {rows}" in ranks[rank]["missing row"]
    for rank, rows in enumerate(["['current']", "[]"]):
        assert f"rank {rank} has the rows {rows}" in ranks[rank]["missing current"]


def test_gradients_in_a_wrappers_buffers_are_refused(ranks):
    for own in ranks:
        refusal, afterwards = own["shared buffers"]
        assert "gradient_as_bucket_view=True" in refusal
        assert "nothing was given" in afterwards


def test_large_gradients_travel_in_buckets(monkeypatch):
    from engram.gradients import _parallel

    monkeypatch.setattr(_parallel, "_BUCKET", 10)
    sizes, dtypes = [4, 5, 3, 20, 1, 1], [torch.float32] * 5 + [torch.float64]
    tensors = [torch.empty(size, dtype=dtype) for size, dtype in zip(sizes, dtypes, strict=True)]
    buckets = [[len(tensor) for tensor in bucket] for bucket in _parallel._buckets(tensors)]
    assert buckets == [[4, 5], [3], [20], [1], [1]]
