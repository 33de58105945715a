"""On a GPU: what a learner's step adds to a mixer's, its memory being there too."""

import contextlib
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

import engram
from engram.errors import EngramError
from engram.memory import ClassRing, Fifo, Memory, Reservoir, TensorStorage
from engram.rules import AGEM, MEGA1, MEGA2, Current

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RULES = [AGEM(), MEGA1(), MEGA2()]


def kind(rule):
    return type(rule).__name__


@contextlib.contextmanager
def nothing_waits():
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def examples(seed, count):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 20, generator=generator)
    return inputs.cuda(), torch.randint(5, (count,), generator=generator).cuda()


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)


def learner(rule, policy=None, loss=None):
    model, optimizer = network()
    memory = None
    if rule.reference != "none":
        memory = Memory(Reservoir(200) if policy is None else policy)
        memory.add(examples(99, 300))
    options = {} if loss is None else {"loss": loss}
    return engram.Learner(model, optimizer, rule, memory, reference_batch=64, **options)


@pytest.mark.parametrize("policy", [Reservoir(200), Fifo(200)], ids=repr)
@pytest.mark.parametrize("rule", [Current(), *RULES], ids=kind)
def test_no_step_waits_though_the_memory_keeps_labels(rule, policy):
    own = learner(rule, policy)
    batches = [examples(seed, 10) for seed in range(10)]
    for batch in batches[:4]:
        own.observe(*batch)
    with nothing_waits():
        for batch in batches[4:]:
            own.observe(*batch)
    own.settle()
    if own.memory is not None:
        sample = own.memory.sample(200)
        assert torch.equal(sample.labels, sample.batch[1])
        held = {each.id: each.label for each in own.memory.examples()}
        assert held == dict(zip(sample.ids, sample.labels.tolist(), strict=True))


def launches(step):
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    both = [ProfilerActivity.CUDA, ProfilerActivity.CPU]
    with profile(activities=both, acc_events=True) as record:  # without it torch 2.11 warns
        for _ in range(4):
            step()
        torch.cuda.synchronize()
    kinds = ("LaunchKernel", "Memcpy", "Memset")
    counts = {each.key: each.count / 4 for each in record.key_averages()}
    # What the host calls, not what the device runs: that has other names.
    called = [key for key in counts if key.startswith("cu") and any(each in key for each in kinds)]
    return {key: counts[key] for key in called}


def plain(model, batch, _):
    return cross_entropy(model(batch[0]), batch[1])


@pytest.mark.parametrize("rule", RULES, ids=kind)
def test_a_step_takes_few_launches_more_than_a_mixers(rule):
    """Two gathers, two writes, three for what is finite, one for where to write; slots once."""
    own = learner(rule, loss=plain)
    model, optimizer = network()
    mixer = engram.GradientMixer(optimizer, rule)
    current, reference = examples(1, 10), examples(2, 64)

    def mixed():
        optimizer.zero_grad()
        mixer.backward(plain(model, reference, None), row="memory")
        mixer.backward(plain(model, current, None))
        mixer.mix()
        optimizer.step()

    least, most = launches(mixed), launches(lambda: own.observe(*current))
    assert sum(most.values()) - sum(least.values()) <= 12, (least, most)


@pytest.mark.parametrize("policy", [Reservoir(30), Fifo(30), ClassRing(5)], ids=repr)
def test_a_memory_on_a_gpu_holds_and_draws_what_one_on_the_host_does(policy):
    here, there = Memory(policy), Memory(policy, TensorStorage("cuda"))
    for step in range(20):
        batch = examples(step, 7)
        good = step % 6 != 5
        there.file(there.prepare(batch, tasks=step // 5), valid=torch.tensor(good).cuda())
        if good:
            here.add(tuple(each.cpu() for each in batch), tasks=step // 5)
        if step % 5 == 4:
            assert there.settle() == 0
            here.end_task()
            there.end_task()
        else:
            there.settle()
        one, other = here.sample(5), there.sample(5)
        assert (one is None) == (other is None)
        if one is not None:
            assert one.ids == other.ids
            assert torch.equal(one.labels, other.labels.cpu())
            assert torch.equal(one.batch[0], other.batch[0].cpu())
    assert [*here.examples()] == [*there.examples()]


@pytest.mark.parametrize("rule", RULES, ids=kind)
def test_a_batch_of_nan_that_the_loss_does_not_see_is_void(rule):
    def loss(model, batch, _):
        return cross_entropy(model(batch[0].nan_to_num()), batch[1])

    own = learner(rule, loss=loss)
    before = [each.detach().clone() for each in own.model.parameters()]
    inputs, classes = examples(3, 10)
    inputs[4, 4] = math.nan
    own.observe(inputs, classes)
    with pytest.raises(EngramError, match="the row 'current' has a loss of nan"):
        own.settle()
    assert all(map(torch.equal, own.model.parameters(), before))
    assert own.memory.sample(200).batch[0].isfinite().all()
