"""Data parallel training: two processes with half a batch each are one with the whole batch."""

import copy
import re
from contextlib import nullcontext
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from gradient_oracles import examples, loss_on, network, sgd
from torch import multiprocessing, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

import engram
from engram.errors import EngramError
from engram.gradients import backward_each
from engram.memory import ClassRing, Fifo, Memory, Ragged, Reservoir
from engram.penalties import EWC, MAS, PI, RWALK
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal
from unwaited import scattered, unwaited

RULES = [AGEM(), MEGA1(), MEGA2(), GEM()]
ALL = [*RULES, Current(), Equal()]
STEPS = 3


def name(rule):
    return type(rule).__name__


def part(batch, rank):
    """Return a rank's half of a batch; all of it where there are no ranks."""
    return batch if rank is None else [tensor.chunk(2)[rank] for tensor in batch]


def batches(step, rank):
    """Return the memory's batch of a step and the current one."""
    return part(examples(10 + step, 16), rank), part(examples(step, 4), rank)


def shared_memory(rank, rule):
    """Learn with one memory for both ranks, of which a sample is divided among them."""
    model = network(0)
    memory = Memory(Reservoir(9) if rule.reference == "pooled" else ClassRing(2), seed=3)
    per_rank = 3 if rank is not None else 6
    learner = engram.Learner(
        model, sgd(model), rule, memory, reference_batch=per_rank, shared=rank is not None
    )
    for step in range(6):
        if step == 3:
            learner.end_task()
        batch = examples(step, 4 + step % 2)
        learner.observe(*part(batch, rank), task=step // 3)
    held = memory.read(range(len(memory)))
    return [*weights(model), *held.batch, held.tasks, memory.sample(5).batch[0]]


def one_memory_for_all(rank):
    """Return what a memory holds of batches that differ in all that is remembered of them."""
    memory = Memory(Fifo(100))
    model = nn.Linear(2, 2)
    with torch.no_grad():
        for each in model.parameters():
            each.zero_()
    learner = engram.Learner(
        model,
        sgd(model),
        MEGA2(),
        memory,
        loss=lambda model, batch, _, weights: weights.sum() + model(batch["y"]).sum(),
        reference_batch=2,
        shared=True,
    )
    for step in range(2):
        learner.observe(
            {
                "x": Ragged([torch.arange(1 + rank * k) % 2 for k in range(1, 3)]),
                "y": torch.ones(2),
            },
            ids=[f"{step}-{rank}-{k}" for k in range(2)],
            labels=[rank, 1],
            tags={"rank": rank},
            weights=[1.0 + rank, 2.0],
            task=step,
        )
    return [(e.id, e.task, e.label, dict(e.tags), e.weight) for e in memory.examples()]


def other_memories(rank):
    """Return what is said of memories that are not alike, and of batches with other columns."""
    model = network(0)
    said = []
    for memory in (Memory(Fifo(10 + rank)), Memory(Fifo(10))):
        learner = engram.Learner(model, sgd(model), MEGA2(), memory, shared=True)
        batch = examples(0, 4)
        if memory.policy.capacity == 10 and len(said) == 1:
            batch = [batch[0].float() if rank else batch[0], batch[1]]
        said.append(sentence(lambda learner=learner, batch=batch: learner.observe(*batch)))
    learner = engram.Learner(model, sgd(model), MEGA2(), Memory(Fifo(10)), shared=True)
    inputs, classes = examples(0, 4)
    said.append(sentence(lambda: learner.observe(inputs / (1 - rank), classes)))
    return said


def weights(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


def by_mixer(rule, rank, **options):
    model = network(0)
    optimizer = sgd(model)
    mixer = engram.GradientMixer(optimizer, rule, **options)
    for step in range(STEPS):
        past, batch = batches(step, rank)
        mixer.backward(loss_on(model, past), row="memory")
        mixer.backward(loss_on(model, batch))
        mix = mixer.mix()
        optimizer.step()
    return [*weights(model), mix.losses, mix.weights]


def by_backward(rule, rank, **options):
    model = network(0)
    optimizer = sgd(model)
    for step in range(STEPS):
        past, batch = batches(step, rank)
        losses = [loss_on(model, batch), loss_on(model, past)]
        mix = engram.backward(losses, model.parameters(), rule, **options)
        optimizer.step()
    return [*weights(model), mix.losses, mix.weights]


def by_backward_each(rule, rank, **options):
    model = network(0)
    optimizer = sgd(model)
    for step in range(STEPS):
        losses = ((loss, loss) for loss in (loss_on(model, each) for each in batches(step, rank)))
        mix = backward_each(losses, model.parameters(), rule, **options)
        optimizer.step()
    return [*weights(model), mix.losses, mix.weights]


def by_learner(rule, rank, **options):
    """Learn, with a memory that holds everything and is looked at as a whole."""
    model = network(0)
    learner = engram.Learner(model, sgd(model), rule, Memory(Fifo(1000)), **options)
    for step in range(STEPS + 1):
        mix = learner.observe(*part(examples(step, 4), rank), task=step // 2)
    return [*weights(model), mix.losses, mix.weights]


WAYS = [by_mixer, by_backward, by_backward_each, by_learner]


def wrapped(rank, *, sync):
    """Return the weights after steps of a wrapped module, whose ranks began differently."""
    model = DistributedDataParallel(network(0 if rank is None else rank))
    optimizer = sgd(model)
    mixer = engram.GradientMixer(optimizer, MEGA2())
    for step in range(STEPS):
        for row, batch in zip(["memory", "current"], batches(step, rank), strict=True):
            with nullcontext() if sync else model.no_sync():
                mixer.backward(loss_on(model, batch), row=row)
        mixer.mix()
        optimizer.step()
    return weights(model)


def wrapped_learner(rank, rule):
    model = DistributedDataParallel(network(rank), gradient_as_bucket_view=True)
    learner = engram.Learner(model, sgd(model), rule, Memory(Fifo(1000)))
    for step in range(STEPS + 1):
        learner.observe(*part(examples(step, 4), rank), task=step // 2)
    return weights(model)


def wrapped_alone(rank):
    """Return what is said of a rank that trains alone a module that averages over ranks."""
    model = DistributedDataParallel(network(0))
    memory = Memory(Fifo(1000))
    learner = engram.Learner(model, sgd(model), MEGA2(), memory, process_group=False)
    before = weights(model)
    said = sentence(lambda: learner.observe(*examples(rank, 4)))
    return said, len(memory), all(map(torch.equal, before, weights(model)))


def reach(rank):
    """Return the gradients where each rank uses a head of its own, and one is used by none."""
    torch.manual_seed(0)
    tops = nn.ModuleList(nn.Linear(5, 3, dtype=torch.float64) for _ in range(3))
    mixer = engram.GradientMixer(sgd(tops), AGEM())
    mixer.backward(loss_on(tops[rank], examples(rank, 4)))
    mixer.mix()
    return [top.weight.grad for top in tops]


def sentence(action):
    with pytest.raises(EngramError) as caught:
        action()
    return str(caught.value)


def missing_row(rank):
    model = network(0)
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    mixer.backward(loss_on(model, examples(0, 4)))
    if rank == 0:
        mixer.backward(loss_on(model, examples(1, 4)), row="memory")
    return sentence(mixer.mix)


def missing_current(rank):
    model = network(0)
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    if rank == 0:
        mixer.backward(loss_on(model, examples(0, 4)))
    return sentence(mixer.mix)


def shared_buffers(rank):
    """Return the error that a wrapper's own buffers would otherwise hide."""
    model = DistributedDataParallel(network(0), gradient_as_bucket_view=True)
    mixer = engram.GradientMixer(sgd(model), MEGA2())

    def steps():
        for step in range(3):
            for row in ["memory", "current"]:
                mixer.backward(loss_on(model, part(examples(step, 4), rank)), row=row)
            mixer.mix()

    return sentence(steps), sentence(mixer.mix)


def other_weights(rank):
    return network(rank)


def other_dtype(rank):
    return network(0, [torch.float32, torch.float64][rank])


def other_shape(rank):
    torch.manual_seed(0)
    return nn.Linear(5, 3 + rank, dtype=torch.float64)


def other_count(rank):
    torch.manual_seed(0)
    return nn.Linear(5, 3, dtype=torch.float64, bias=rank == 0)


def other_frozen(rank):
    model = network(0)
    model[0].requires_grad_(rank == 0)
    return model


OTHERS = [other_weights, other_dtype, other_shape, other_count, other_frozen]
TOLD = {
    "other_weights": r"The parameters are not the same on all ranks.*parameter 0, \[7, 5\]",
    "other_dtype": r"parameter 0 is \[7, 5\] torch.float32 .*on rank 0 .*torch.float64 .*on rank 1",
    "other_shape": r"parameter 0.*\[3, 5\].*on rank 0.*\[4, 5\].*on rank 1",
    "other_count": r"2 parameters on rank 0.*1 on rank 1",
    "other_frozen": r"parameter 0 is .*trained\) on rank 0 and .*frozen\) on rank 1",
}


def unlike(made, rank):
    """Return what each way of taking a step has to say of models that are not replicas."""
    said = []
    for needs_gram in (True, False):
        model, rule = made(rank), MEGA2() if needs_gram else MEGA1()
        dtype = next(model.parameters()).dtype
        before, batch = weights(model), examples(0, 4, dtype)
        learner = engram.Learner(model, sgd(model), rule, Memory(Fifo(10)))
        loss = loss_on(model, batch)
        said += [
            sentence(partial(engram.backward, [loss], [*model.parameters()], rule)),
            sentence(partial(learner.observe, *batch)),
        ]
        assert all(map(torch.equal, weights(model), before))
        assert len(learner.memory) == 0
        assert all(parameter.grad is None for parameter in model.parameters())
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    mixer.backward(loss_on(model, batch))
    return [*said, sentence(mixer.mix)]


def head_added(rank):
    """Return what is said when a head comes that each rank has drawn for itself."""
    model = network(0)
    optimizer = sgd(model)
    mixer = engram.GradientMixer(optimizer, MEGA2())

    def step(top):
        mixer.backward(loss_on(nn.Sequential(*model[:2], top), examples(0, 4)))
        mixer.mix()

    step(model[2])
    torch.manual_seed(rank)
    top = nn.Linear(7, 3, dtype=torch.float64)
    optimizer.add_param_group({"params": top.parameters()})
    return sentence(lambda: step(top))


def one_loaded(rank):
    """Return what is said where a learner's state was loaded on one rank alone."""
    model = network(0)
    learner = engram.Learner(model, sgd(model), MEGA2(), Memory(Fifo(10)))
    learner.observe(*examples(0, 4))
    state = copy.deepcopy(learner.state_dict())
    learner.observe(*examples(1, 4))
    if rank == 1:
        learner.load_state_dict(state)
    return sentence(lambda: learner.observe(*examples(2, 4)))


def drifting(rank):
    """Return when ranks with different learning rates are told, and what is said."""
    said = []
    for rule in (MEGA1(), MEGA2()):
        model = network(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001 * (1 + rank))
        learner = engram.Learner(model, optimizer, rule, Memory(Fifo(10)))
        step = 0
        with pytest.raises(EngramError) as caught:  # noqa: PT012 (it is the step that is told)
            for step in range(1000):
                learner.observe(*examples(step, 4))
        said.append((step, str(caught.value)))
    return said


def other_rules(rank):
    """Return what is said where each rank weighs its rows by a rule of its own."""
    said = []
    for pair in [(MEGA2(), MEGA2(balance=False)), (MEGA1(), MEGA2()), (Equal(), MEGA1())]:
        model = network(0)
        learner = engram.Learner(model, sgd(model), pair[rank], Memory(Fifo(10)))
        losses = [loss_on(model, examples(step, 4)) for step in (0, 1)]
        said += [
            sentence(partial(engram.backward, losses, [*model.parameters()], pair[rank])),
            sentence(lambda learner=learner: learner.observe(*examples(0, 4))),
        ]
    return said


def losses_in(rank, dtypes, rule):
    """Return the weights where the losses of the ranks are of these dtypes."""
    model = network(0, torch.float32)
    optimizer = sgd(model)
    for step in range(STEPS):
        past, batch = (part(examples(seed, 4, torch.float32), rank) for seed in (10 + step, step))
        losses = [loss_on(model, each).to(dtypes[rank]) for each in (batch, past)]
        engram.backward(losses, model.parameters(), rule)
        optimizer.step()
    return weights(model)


def broken(rank, *, rule, trouble, check_finite=100):
    """Return what is said where one rank's step goes wrong, and the weights of the next one."""
    model, asked = network(0), []

    def loss(model, batch, _):
        asked.append(rank)
        if rank == 1 and len(asked) == 2 and trouble == "an error":
            raise RuntimeError("out of luck")
        if rank == 1 and len(asked) == 2 and trouble == "nan":
            return loss_on(model, batch) * torch.nan
        return loss_on(model, batch)

    memory = Memory(Fifo(1000))
    learner = engram.Learner(model, sgd(model), rule, memory, loss=loss, check_finite=check_finite)
    learner.observe(*part(examples(0, 4), rank))
    before = weights(model)
    bad = part(examples(1, 4), rank)
    if rank == 1 and trouble == "a batch":
        bad = bad[0].float(), bad[1]
    with pytest.raises((EngramError, RuntimeError)) as caught:
        learner.observe(*bad)
    assert all(map(torch.equal, weights(model), before))
    assert len(memory) == 2
    learner.observe(*part(examples(2, 4), rank))
    return type(caught.value).__name__, str(caught.value), weights(model)


def broken_on_a_device(rank, rule):
    """Do the same where a device is asked at the end of each step, and the CPU is that device."""
    found = []
    for place in (unwaited, scattered):
        with pytest.MonkeyPatch.context() as patch:
            place(patch)
            found.append(broken(rank, rule=rule, trouble="nan", check_finite=1))
    (*told, weights), (*again, others) = found
    assert told == again
    torch.testing.assert_close(weights, others)
    return found[0]


def one_empty_memory(rank, rule):
    """Take a step where the first rank alone remembers, or each rank another set of tasks."""
    memory = Memory(Fifo(1000))
    tasks = [0] if rule.reference == "pooled" else [0, 1, 2]
    for task in tasks:
        whole = examples(10 + task, 6)
        if task == 1:
            memory.add(tuple(part(whole, rank)), tasks=task)
        elif rank in (None, task // 2):
            memory.add(whole, tasks=task)
    model = network(0)
    learner = engram.Learner(model, sgd(model), rule, memory)
    mix = learner.observe(*part(examples(0, 4), rank), task=5)
    return [*weights(model), mix.losses, mix.weights]


PENALTIES = {
    "EWC": partial(EWC, 2.0, refresh_interval=2),
    "Kirkpatrick": partial(EWC, 2.0, formula="kirkpatrick"),
    "PI": partial(PI, 1.0),
    "MAS": partial(MAS, 1.0, formula="aljundi"),
    "RWALK": partial(RWALK, 1.0, refresh_interval=2),
}


def penalised(rank, kind):
    """Learn two tasks with a penalty, which goes through each rank's part of a task."""
    model = network(0)
    learner = engram.Learner(model, sgd(model), penalty=PENALTIES[kind]())
    for task in range(2):
        seen = [part(examples(10 * task + step, 4), rank) for step in range(STEPS)]
        for batch in seen:
            learner.observe(*batch)
        learner.end_task([tuple(batch) for batch in seen])
    learner.observe(*part(examples(30, 4), rank))
    return [*weights(model), learner.penalty.value()]


def penalty_trouble(rank):
    """Return what is said where one rank cannot go through its part of a task."""
    model = network(0)
    learner = engram.Learner(model, sgd(model), penalty=MAS(1.0))
    learner.observe(*part(examples(0, 4), rank))
    given = ["no batch"] if rank else [tuple(part(examples(0, 4), rank))]
    return sentence(lambda: learner.end_task(given))


def fully_sharded(rank):
    """Return what is said of FSDP's flat parameters, of its views of them, and of its modules."""
    whole = FullyShardedDataParallel(network(0), device_id=torch.device("cpu"))
    views = FullyShardedDataParallel(
        network(0), device_id=torch.device("cpu"), use_orig_params=True
    )
    flat = engram.GradientMixer(sgd(whole), MEGA2())
    mixer = engram.GradientMixer(sgd(views), MEGA2())
    batch = part(examples(0, 4), rank)
    mixer.backward(loss_on(views, batch))
    return [
        sentence(lambda: flat.backward(loss_on(whole, batch))),
        sentence(mixer.mix),
        sentence(lambda: engram.Learner(views, sgd(views), MEGA2(), Memory(Fifo(10)))),
    ]


def messages(rank):
    """Return the sizes of the messages that a step sends, and the values in each mean gradient."""
    sizes, original = [], dist.all_reduce

    def counted(tensor, *others):
        sizes.extend([tensor.numel()] if tensor.is_floating_point() else [])
        return original(tensor, *others)

    elements = {20: None, 30: None, 2**23 + 1: None, 7: torch.float64, 5: None}
    held = [nn.Parameter(torch.ones(size, dtype=dtype)) for size, dtype in elements.items()]
    mixer = engram.GradientMixer(torch.optim.SGD(held, lr=0.1), MEGA2())
    mixer.backward(sum(each.sum() for each in held) * (1 + rank), value=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", counted)
        mixer.mix()
    return sizes, [each.grad.unique().tolist() for each in held]


def messages_of_layers(rank):
    """Return how many messages two passes of DistributedDataParallel send, and how many we do."""
    sent, original = [], dist.all_reduce

    def hook(group, bucket):
        sent.append(bucket.buffer().numel())
        return default_hooks.allreduce_hook(group, bucket)

    def counted(tensor, *others):
        sent.append(tensor.numel())
        return original(tensor, *others)

    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(8))))
    model.register_comm_hook(None, hook)
    inputs = torch.full((2, 1000), 1.0 + rank)
    for _ in range(2):  # it puts its buckets together anew after the first pass
        sent.clear()
        for _ in ("memory", "current"):
            model(inputs).square().mean().backward()
    theirs = len(sent)
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    with model.no_sync(), pytest.MonkeyPatch.context() as patch:
        for _ in range(2):  # weights are compared in the first step
            for row in ("memory", "current"):
                mixer.backward(model(inputs).square().mean(), row=row)
            sent.clear()
            patch.setattr(dist, "all_reduce", counted)
            mixer.mix()
            patch.undo()
    return theirs, len(sent)


def sparse():
    """Return what is said of gradients that cannot travel."""
    said = []
    for rule in (MEGA1(), MEGA2()):
        torch.manual_seed(0)
        model = nn.Embedding(10, 3, sparse=True)
        losses = [model(torch.tensor([1, 2])).square().sum()]
        said.append(sentence(partial(engram.backward, losses, [*model.parameters()], rule)))
    return said


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
            **{(way.__name__, name(rule)): way(rule, rank) for way in WAYS for rule in ALL},
            "a group": by_mixer(MEGA2(), rank, process_group=group),
            "alone": {
                (way.__name__, name(rule)): way(rule, rank, process_group=False)
                for way in WAYS
                for rule in (MEGA1(), MEGA2())
            },
            "wrapped": [wrapped(rank, sync=sync) for sync in (True, False)],
            "wrapped alone": wrapped_alone(rank),
            "wrapped learner": [wrapped_learner(rank, rule) for rule in (MEGA1(), MEGA2())],
            "reach": reach(rank),
            "missing row": missing_row(rank),
            "missing current": missing_current(rank),
            "shared buffers": shared_buffers(rank),
            **{made.__name__: unlike(made, rank) for made in OTHERS},
            "head added": head_added(rank),
            "one loaded": one_loaded(rank),
            "drifting": drifting(rank),
            "other rules": other_rules(rank),
            **{
                ("losses in", name(rule)): [
                    losses_in(rank, dtypes, rule)
                    for dtypes in ([torch.float32, torch.float64], [torch.float32, torch.bfloat16])
                ]
                for rule in (MEGA1(), MEGA2())
            },
            **{
                ("broken", name(rule), trouble): broken(rank, rule=rule, trouble=trouble)
                for rule in (MEGA1(), MEGA2())
                for trouble in ("a batch", "an error", "nan")
            },
            **{
                ("on a device", name(rule)): broken_on_a_device(rank, rule)
                for rule in (MEGA1(), MEGA2())
            },
            **{
                ("one empty", name(rule)): one_empty_memory(rank, rule)
                for rule in (MEGA1(), MEGA2(), GEM())
            },
            **{("penalised", kind): penalised(rank, kind) for kind in PENALTIES},
            "penalty trouble": penalty_trouble(rank),
            "messages": messages(rank),
            "messages of layers": messages_of_layers(rank),
            **{
                ("shared", name(rule)): shared_memory(rank, rule)
                for rule in (MEGA1(), MEGA2(), GEM())
            },
            "one memory for all": one_memory_for_all(rank),
            "other memories": other_memories(rank),
            "sparse": sparse(),
            "fully sharded": fully_sharded(rank),
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


def check_equal(ranks, key, whole):
    """Compare the ranks with one process, up to rounding, and with each other, bit for bit."""
    first, second = (own[key] for own in ranks)
    assert all(map(torch.equal, first, second))
    for ours, expected in zip(first, whole, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rule", ALL, ids=name)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_two_processes_equal_one_with_the_whole_batch(ranks, way, rule):
    check_equal(ranks, (way.__name__, name(rule)), way(rule, None))


@pytest.mark.parametrize("kind", PENALTIES)
def test_a_penalty_on_two_ranks_is_that_of_one_with_the_whole_batch(ranks, kind):
    check_equal(ranks, ("penalised", kind), penalised(None, kind))


def test_what_a_penalty_cannot_go_through_on_one_rank_is_an_error_on_all(ranks):
    first, second = (own["penalty trouble"] for own in ranks)
    assert first == second
    assert "Rank 1" in first
    assert "A batch of the task is" in first


def test_a_group_may_be_given(ranks):
    check_equal(ranks, "a group", by_mixer(MEGA2(), None))


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_rank_may_train_alone(ranks, way, rule):
    for rank, own in enumerate(ranks):
        found = own["alone"][way.__name__, name(rule)]
        for ours, expected in zip(found, way(rule, rank), strict=True):
            assert torch.equal(ours, expected)


def test_a_wrapped_module_takes_the_same_steps_with_and_without_its_own_averaging(ranks):
    whole = by_mixer(MEGA2(), None)[:-2]
    for sync in (0, 1):
        found = [{"wrapped": own["wrapped"][sync]} for own in ranks]
        check_equal(found, "wrapped", whole)


def test_a_learner_averages_a_wrapped_module_once(ranks):
    for place, rule in enumerate([MEGA1(), MEGA2()]):
        found = [{"learner": own["wrapped learner"][place]} for own in ranks]
        check_equal(found, "learner", by_learner(rule, None)[:-2])


def test_a_learner_that_trains_alone_refuses_a_wrapped_module(ranks):
    for own in ranks:
        said, held, unchanged = own["wrapped alone"]
        assert "with process_group=False a rank trains alone" in said
        assert (held, unchanged) == (0, True)


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
    assert ranks[0]["missing row"] == ranks[1]["missing row"]
    assert "rank 0 has ['current', 'memory'], rank 1 has ['current']" in ranks[0]["missing row"]
    assert ranks[0]["missing current"] == ranks[1]["missing current"]
    assert "rank 0 has ['current'], rank 1 has []" in ranks[0]["missing current"]


def test_gradients_in_a_wrappers_buffers_are_refused(ranks):
    for own in ranks:
        refusal, afterwards = own["shared buffers"]
        assert "gradient_as_bucket_view=True" in refusal
        assert "nothing was given" in afterwards


@pytest.mark.parametrize("made", OTHERS, ids=lambda made: made.__name__)
def test_modules_that_are_no_replicas_are_refused_by_the_same_sentence_on_all_ranks(ranks, made):
    first, second = (own[made.__name__] for own in ranks)
    assert first == second
    assert len({*first}) == 1
    assert re.search(TOLD[made.__name__], first[0])


def test_weights_are_compared_again_when_others_come(ranks):
    assert ranks[0]["head added"] == ranks[1]["head added"]
    assert "parameter 4, [3, 7]" in ranks[0]["head added"]
    assert ranks[0]["one loaded"] == ranks[1]["one loaded"]
    assert "not the same on all ranks" in ranks[0]["one loaded"]


def test_weights_are_compared_again_after_every_100_steps(ranks):
    """Whatever made them differ: optimisers with other settings, say, or a write to one of them."""
    assert ranks[0]["drifting"] == ranks[1]["drifting"]
    for step, said in ranks[0]["drifting"]:
        assert step == 100
        assert "the weights of parameter 0, [7, 5] torch.float64" in said


def test_ranks_with_different_rules_are_told(ranks):
    for first, second in zip(ranks[0]["other rules"], ranks[1]["other rules"], strict=True):
        assert first == second
        assert "must weigh its rows by the same rule" in first
    assert "rank 0 has MEGA2(balance=True" in ranks[0]["other rules"][0]
    assert "rank 1 has MEGA2(balance=False" in ranks[0]["other rules"][0]


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_losses_may_be_of_another_dtype_on_each_rank(ranks, rule):
    for ours, others in zip(*(own["losses in", name(rule)] for own in ranks), strict=True):
        assert all(map(torch.equal, ours, others))


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_what_goes_wrong_on_one_rank_is_an_error_on_all_and_the_next_step_is_taken(ranks, rule):
    for trouble in ("a batch", "an error", "nan"):
        (_, _, ours), (_, _, others) = (own["broken", name(rule), trouble] for own in ranks)
        assert all(map(torch.equal, ours, others))
    told = [own["broken", name(rule), "a batch"][:2] for own in ranks]
    assert told[0] == told[1]
    assert told[0][0] == "EngramError"
    assert "Rank 1" in told[0][1]
    assert "float32" in told[0][1]
    (kind, said, _), (other_kind, original, _) = (
        own["broken", name(rule), "an error"] for own in ranks
    )
    assert (kind, other_kind, original) == ("EngramError", "RuntimeError", "out of luck")
    assert "Rank 1" in said
    assert "RuntimeError: out of luck" in said
    told = [own["broken", name(rule), "nan"][:2] for own in ranks]
    assert told[0] == told[1]
    assert "The row 'memory' has a loss of nan" in told[0][1]
    (*told, ours), (*told_too, others) = (own["on a device", name(rule)] for own in ranks)
    assert all(map(torch.equal, ours, others))
    assert told == told_too
    assert "In step 2, the row 'memory' has a loss of nan" in told[1]


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2(), GEM()], ids=name)
def test_a_row_is_the_mean_of_those_ranks_whose_memory_has_it(ranks, rule):
    check_equal(ranks, ("one empty", name(rule)), one_empty_memory(None, rule))


def test_sparse_gradients_are_refused(ranks):
    for own in ranks:
        assert all("an embedding needs sparse=False" in said for said in own["sparse"])


def test_flat_parameters_are_refused(ranks):
    for own in ranks:
        flat, views, module = own["fully sharded"]
        assert "FlatParameter" in flat
        assert "not the same on all ranks" in views
        assert "FullyShardedDataParallel" in module


@pytest.mark.parametrize("wrong", [True, "gloo", 3])
def test_a_process_group_is_one_of_torchs(wrong):
    model = network(0)
    loss = loss_on(model, examples(0, 4))
    for mistake in (
        lambda: engram.GradientMixer(sgd(model), MEGA2(), process_group=wrong),
        lambda: engram.backward([loss], model.parameters(), MEGA2(), process_group=wrong),
        lambda: backward_each([(loss, loss)], model.parameters(), MEGA2(), process_group=wrong),
        lambda: engram.Learner(model, sgd(model), MEGA2(), Memory(Fifo(10)), process_group=wrong),
    ):
        assert "process_group must be" in sentence(mistake)


def test_gradients_travel_together_up_to_8_million_elements_of_a_dtype(ranks):
    for sizes, means in (own["messages"] for own in ranks):
        assert sizes == [50, 2**23 + 1, 8, 5]  # the rows' values travel with those of their dtype
        assert means == [[1.5]] * 5


def test_a_step_takes_no_more_messages_than_two_passes_of_distributed_data_parallel(ranks):
    for theirs, ours in (own["messages of layers"] for own in ranks):
        assert 1 < ours <= theirs + 1  # the one is a few numbers, by which ranks compare rows


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2(), GEM()], ids=name)
def test_a_shared_memory_is_that_of_one_process(ranks, rule):
    check_equal(ranks, ("shared", name(rule)), shared_memory(None, rule))


def test_a_shared_memory_holds_all_that_is_known_of_every_rank_s_examples(ranks):
    assert ranks[0]["one memory for all"] == ranks[1]["one memory for all"]
    assert ranks[0]["one memory for all"] == [
        (f"{step}-{rank}-{k}", step, [rank, 1][k], {"rank": rank}, [1.0 + rank, 2.0][k])
        for step in range(2)
        for rank in range(2)
        for k in range(2)
    ]


def test_what_cannot_be_shared_is_told_on_all_ranks(ranks):
    assert ranks[0]["other memories"] == ranks[1]["other memories"]
    memories, columns, values = ranks[0]["other memories"]
    assert "shared" in memories
    assert "must have the same columns" in columns
    assert "Rank 1" in values
    assert "not finite" in values
