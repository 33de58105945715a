"""Sharded and replicated models on several ranks: each takes the steps of one with everything."""

import copy
from datetime import timedelta
from itertools import accumulate

import pytest
import torch
import torch.distributed as dist
from gradient_oracles import examples, loss_on, network, sgd
from torch import multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import engram
from engram.errors import EngramError
from engram.gradients import backward_each, rank_share
from engram.memory import Fifo, Memory
from engram.penalties import EWC
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Equal
from unwaited import unwaited

RULES = [MEGA1(), MEGA2(), AGEM(), GEM(), Equal()]
STEPS = 10
WIDTHS = [3, 1, 4, 2]  # the examples of each rank: the whole batch of two ranks is 4, of four 10


def name(rule):
    return type(rule).__name__


def whole_batch(step, world, dtype=torch.float64):
    return examples(step, sum(WIDTHS[:world]), dtype)


def part(batch, rank):
    """Return a rank's examples, of which there are more on some; all where there are no ranks."""
    if rank is None:
        return batch
    first = [0, *accumulate(WIDTHS)][rank]
    return [tensor[first : first + WIDTHS[rank]] for tensor in batch]


def meshes(world, kind):
    if kind == "hsdp":
        return init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (world,))


def sharded(world, kind="even", dtype=torch.float64, **options):
    """Return a network that is sharded by FSDP2: 7 and 3 rows go evenly over no number of ranks."""
    model, mesh = network(0, dtype), meshes(world, kind)
    if kind != "root alone":
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def full(model):
    """Return the whole weights of a model, whatever it is wrapped in."""
    return [
        (each.full_tensor() if isinstance(each, DTensor) else each).detach().clone()
        for each in model.parameters()
    ]


def made(wrapping, rank, world, dtype):
    if rank is None:
        return network(0, dtype)
    if wrapping == "replicated":
        return DistributedDataParallel(network(0, dtype))
    return sharded(world, wrapping, dtype)


def learned(wrapping, rule, rank, world, steps=STEPS, dtype=torch.float64, **options):
    """Learn, with a memory that holds everything and is looked at as a whole."""
    model = made(wrapping, rank, world, dtype)
    learner = engram.Learner(model, sgd(model), rule, Memory(Fifo(1000)), **options)
    for step in range(steps):
        mix = learner.observe(*part(whole_batch(step, world, dtype), rank), task=step // 4)
    return [*full(model), mix.losses, mix.weights]


def shares(rank, world, step):
    """Return by what a rank's loss is multiplied."""
    return 1.0 if rank is None else rank_share(len(part(whole_batch(step, world), rank)[0]))


def mixed(wrapping, rule, rank, world, steps=STEPS, dtype=torch.float64):
    model = made(wrapping, rank, world, dtype)
    optimizer = sgd(model)
    mixer = engram.GradientMixer(optimizer, rule)
    for step in range(steps):
        for row, seed in (("memory", step + 100), ("current", step)):
            loss = loss_on(model, part(whole_batch(seed, world, dtype), rank))
            mixer.backward(loss * shares(rank, world, seed), row=row)
        mix = mixer.mix()
        optimizer.step()
    return [*full(model), mix.losses, mix.weights]


def by_backward(wrapping, rule, rank, world):
    """Take steps with all losses at once; ``model.parameters()`` is read after forward passes."""
    model = made(wrapping, rank, world, torch.float64)
    optimizer = sgd(model)
    for step in range(3):
        losses = [
            loss_on(model, part(whole_batch(seed, world), rank)) * shares(rank, world, seed)
            for seed in (step, step + 100)
        ]
        engram.backward(losses, model.parameters(), rule)
        optimizer.step()
    return full(model)


def by_backward_each(wrapping, rule, rank, world):
    model = made(wrapping, rank, world, torch.float64)
    optimizer = sgd(model)
    for step in range(3):
        losses = (
            loss_on(model, part(whole_batch(seed, world), rank)) * shares(rank, world, seed)
            for seed in (step + 100, step)
        )
        backward_each(((loss, loss) for loss in losses), model.parameters(), rule)
        optimizer.step()
    return full(model)


def one_empty_memory(wrapping, rule, rank, world):
    """Take a step where the first rank alone remembers, and each rank has other tasks."""
    memory = Memory(Fifo(1000))
    if rank in (None, 0):
        memory.add(examples(50, 6), tasks=0)
    if rank in (None, world - 1):
        memory.add(examples(51, 5), tasks=1)
    model = made(wrapping, rank, world, torch.float64)
    learner = engram.Learner(model, sgd(model), rule, memory, micro_batch=4)
    mix = learner.observe(*part(whole_batch(0, world), rank), task=5)
    return [*full(model), mix.losses, mix.weights]


def weighted(wrapping, rank, world):
    """Learn from examples with weights, by the sum of which ranks then count."""
    model = made(wrapping, rank, world, torch.float64)
    learner = engram.Learner(model, sgd(model), MEGA2(), Memory(Fifo(1000)), micro_batch=2)
    for step in range(3):
        batch = whole_batch(step, world)
        weights = torch.arange(1.0, 1.0 + len(batch[0]))
        *own, own_weights = part([*batch, weights], rank)
        learner.observe(*own, weights=own_weights)
    return full(model)


def resumed(world, rank):
    """Return the weights of learners that went on, and that went on from another one's state."""
    ends = []
    state = None
    for seed in (0, 1):
        model = sharded(world)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01 * (1 + seed))
        learner = engram.Learner(model, optimizer, MEGA2(), Memory(Fifo(1000)))
        if state is None:
            for step in range(3):
                learner.observe(*part(whole_batch(step, world), rank))
            state = copy.deepcopy(learner.state_dict())
        else:
            learner.load_state_dict(state)
        learner.observe(*part(whole_batch(3, world), rank))
        ends.append(full(model))
    return ends


def held_back(world, rank, *, last):
    """Accumulate two micro-batches a row, the first of which FSDP2 holds back."""
    model = made("even", rank, world, torch.float64)
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    for row, seed in (("memory", 1), ("current", 2)):
        for place in range(2):
            if rank is not None:
                model.set_requires_gradient_sync(place == last)
            batch = part(whole_batch(seed + 10 * place, world), rank)
            loss = loss_on(model, batch) * shares(rank, world, seed)
            mixer.backward(loss / 2, row=row)
    mixer.mix()
    return [
        each.grad.full_tensor() if isinstance(each.grad, DTensor) else each.grad
        for each in model.parameters()
    ]


def sentence(action):
    with pytest.raises(EngramError) as caught:
        action()
    return str(caught.value)


def refused_to_hold_back(world, rank):
    said = [sentence(lambda: held_back(world, rank, last=0))]
    model = sharded(world)
    learner = engram.Learner(model, sgd(model), MEGA2(), Memory(Fifo(100)))
    model.set_requires_gradient_sync(False)
    return [*said, sentence(lambda: learner.observe(*examples(0, 4)))]


def low_precision(world):
    """Return what a policy of mixed precision leaves: whole gradients in float32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded(world, dtype=torch.float32, mp_policy=policy)
    learner = engram.Learner(model, sgd(model), MEGA2(), Memory(Fifo(100)))
    for step in range(3):
        mix = learner.observe(*examples(step, 4, torch.float32))
    return mix.losses, mix.weights, *full(model)


def scaled(rule, rank, world, wrapping="even"):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    return learned(
        wrapping, rule, rank, world, 3, scaler=scaler, clip_norm=0.05, reference_batch=1000
    )


class Rooted(nn.Module):
    """Adds sqrt(w - w) of one weight: 0, with a gradient that is not finite, of that one alone."""

    def __init__(self):
        super().__init__()
        self.layers = network(0)
        self.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.broken = False

    def forward(self, inputs):
        outputs = self.layers(inputs)
        first = self.weight[0]
        return outputs + (first - 1).abs().sqrt() if self.broken else outputs + 0 * first


def not_finite(rule, world, *, waits):
    """Return what is said where the gradient is not finite in the first rank's part alone."""
    model = fully_shard(Rooted(), mesh=meshes(world, "even"))
    learner = engram.Learner(model, sgd(model), rule, Memory(Fifo(100)), check_finite=1)
    learner.observe(*examples(0, 4))
    before = full(model)
    model.broken = True
    with pytest.MonkeyPatch.context() as patch:
        if not waits:
            unwaited(patch)
        said = sentence(lambda: learner.observe(*examples(1, 4)))
    assert all(map(torch.equal, full(model), before))
    assert len(learner.memory) == 4
    return said


def bad_batch(world, rank):
    """Return what is said where the last rank's batch cannot be learnt from, and the step after."""
    model = sharded(world)
    learner = engram.Learner(model, sgd(model), MEGA2(), Memory(Fifo(100)))
    learner.observe(*part(whole_batch(0, world), rank))
    inputs, classes = part(whole_batch(1, world), rank)
    said = sentence(lambda: learner.observe(inputs / (world - 1 - rank), classes))
    learner.observe(*part(whole_batch(2, world), rank))
    return said, full(model)


class Doubled(nn.Sequential):
    """Returns no view of what its last layer does, which FSDP2 warns of."""

    def forward(self, inputs):
        return super().forward(inputs) * 2


def tensor_parallel(rule, rank, world, kind):
    """Learn with a model whose layers are split: alone over all ranks, or FSDP2 over them too."""
    torch.manual_seed(0)
    model = Doubled(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    share = rank
    if rank is not None and kind == "alone":
        parallelize_module(model, init_device_mesh("cpu", (world,)), plan)
        share = None  # all ranks have the same batch
    elif rank is not None:
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(model, mesh["tensor"], plan)
        fully_shard(model, mesh=mesh["data"])
        share = rank // 2
    optimizer = sgd(model)
    mixer = engram.GradientMixer(optimizer, rule)
    for step in range(3):
        for row, seed in (("memory", step + 100), ("current", step)):
            batch = examples(seed, 8)
            if share is not None:
                batch = [each.chunk(world // 2)[share] for each in batch]
            mixer.backward(loss_on(model, batch), row=row)
        mix = mixer.mix()
        optimizer.step()
    return [*full(model), mix.losses, mix.weights]


def partial_gradient(world):
    """Return the mixture where autograd leaves one term of the gradient on each rank."""
    mesh = init_device_mesh("cpu", (world,))
    ones = torch.ones(4, dtype=torch.float64)
    weight = nn.Parameter(distribute_tensor(ones, mesh, [Replicate()]))
    numbers = torch.arange(4.0 * world, dtype=torch.float64).view(world, 4)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    mixer = engram.GradientMixer(optimizer, MEGA2())
    for row, factor in (("memory", 2.0), ("current", 3.0)):
        data = distribute_tensor(numbers * factor, mesh, [Shard(0)])
        loss = (data * weight).sum()
        mixer.backward(loss, row=row)
    mix = mixer.mix()
    assert not any(isinstance(each, Partial) for each in weight.grad.placements)
    return mix.gram, mix.losses


def refusals(world):
    model = sharded(world)
    alone = engram.GradientMixer(sgd(model), MEGA2(), process_group=False)
    batch = examples(0, 4)
    return {
        "alone": sentence(lambda: alone.backward(loss_on(model, batch))),
        "penalty": sentence(lambda: engram.Learner(model, sgd(model), penalty=EWC(1.0))),
    }


def split_and_copied(world):
    """Return what is said of split layers of which there are several copies, averaged by nobody."""
    model = Doubled(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    return sentence(lambda: mixer.backward(loss_on(model, examples(0, 4))))


def other_replica(world, rank):
    """Return what is said where the replicas of a part differ."""
    model = sharded(world, "hsdp")
    if rank == world - 1:
        with torch.no_grad():
            model[0].weight.to_local().add_(1)
    learner = engram.Learner(model, sgd(model), MEGA2(), Memory(Fifo(10)))
    return sentence(lambda: learner.observe(*examples(0, 4)))


def work(rank, world, path):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=120),
    )
    try:
        kinds = ["even", "replicated", *(["hsdp"] if world == 4 else [])]
        found = {}
        for rule in RULES:
            for kind in kinds:
                found["learned", kind, name(rule)] = learned(kind, rule, rank, world)
            found["float32", name(rule)] = learned("even", rule, rank, world, 2, torch.float32)
            found["mixed", name(rule)] = mixed("root alone", rule, rank, world)
        for rule in (MEGA1(), MEGA2()):
            found["backward", name(rule)] = by_backward("root alone", rule, rank, world)
            found["each", name(rule)] = by_backward_each("even", rule, rank, world)
        for kind in ("even", "replicated"):
            for rule in (MEGA1(), MEGA2(), GEM()):
                found["empty", kind, name(rule)] = one_empty_memory(kind, rule, rank, world)
        for rule in (MEGA1(), MEGA2()):
            found["scaled", name(rule)] = scaled(rule, rank, world)
            found["parallel", name(rule)] = tensor_parallel(rule, rank, world, "alone")
            if world == 4:
                found["2d", name(rule)] = tensor_parallel(rule, rank, world, "fsdp")
        for kind in ("even", "replicated"):
            found["weighted", kind] = weighted(kind, rank, world)
        found["resumed"] = resumed(world, rank)
        found["held back"] = held_back(world, rank, last=1)
        found["refused to hold back"] = refused_to_hold_back(world, rank)
        found["low precision"] = low_precision(world)
        found["partial"] = partial_gradient(world)
        for rule in (MEGA1(), MEGA2()):
            for waits in (True, False):
                found["not finite", name(rule), waits] = not_finite(rule, world, waits=waits)
        found["bad batch"] = bad_batch(world, rank)
        found["refusals"] = refusals(world)
        if world == 4:
            found["split and copied"] = split_and_copied(world)
            found["other replica"] = other_replica(world, rank)
        return found
    finally:
        dist.destroy_process_group()


def other_rank(rank, world, folder):
    torch.set_num_threads(1)
    torch.save(work(rank, world, folder / "meeting"), folder / str(rank))


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def ranks(request, tmp_path_factory):
    """Return how many ranks there are and what each computed; this process is the first."""
    world, folder = request.param, tmp_path_factory.mktemp("group")
    context = multiprocessing.get_context("spawn")
    others = [
        context.Process(target=other_rank, args=(rank, world, folder)) for rank in range(1, world)
    ]
    for process in others:
        process.start()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = [work(0, world, folder / "meeting")]
    torch.set_num_threads(threads)
    for rank, process in enumerate(others, 1):
        process.join(timeout=120)
        found.append(torch.load(folder / str(rank)))
    return world, found


def check_equal(found, key, whole, tolerance=1e-10):
    """Compare the ranks with each other, bit for bit, and with one process, up to rounding."""
    first, *others = (own[key] for own in found)
    for other in others:
        assert all(map(torch.equal, first, other))
    for ours, expected in zip(first, whole, strict=True):
        torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_ten_steps_of_a_learner_are_those_of_one_process_with_every_rank_s_examples(ranks, rule):
    world, found = ranks
    whole = learned(None, rule, None, world)
    for kind in ["even", "replicated", *(["hsdp"] if world == 4 else [])]:
        check_equal(found, ("learned", kind, name(rule)), whole)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_step_in_float32_is_that_of_one_process(ranks, rule):
    world, found = ranks
    whole = learned(None, rule, None, world, 2, torch.float32)
    check_equal(found, ("float32", name(rule)), whole, 1e-6)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_ten_steps_of_a_mixer_are_those_of_one_process(ranks, rule):
    world, found = ranks
    check_equal(found, ("mixed", name(rule)), mixed(None, rule, None, world))


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_steps_by_losses_are_those_of_one_process(ranks, rule):
    world, found = ranks
    check_equal(found, ("backward", name(rule)), by_backward(None, rule, None, world))
    check_equal(found, ("each", name(rule)), by_backward_each(None, rule, None, world))


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2(), GEM()], ids=name)
def test_a_rank_whose_memory_is_empty_takes_part(ranks, rule):
    world, found = ranks
    whole = one_empty_memory(None, rule, None, world)
    for kind in ("even", "replicated"):
        check_equal(found, ("empty", kind, name(rule)), whole)


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_a_scaler_and_a_clipped_length_work_with_parts(ranks, rule):
    world, found = ranks
    check_equal(found, ("scaled", name(rule)), scaled(rule, None, world))


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_split_layers_count_each_element_once(ranks, rule):
    world, found = ranks
    check_equal(found, ("parallel", name(rule)), tensor_parallel(rule, None, world, "alone"))
    if world == 4:
        check_equal(found, ("2d", name(rule)), tensor_parallel(rule, None, world, "fsdp"))


@pytest.mark.parametrize("kind", ["even", "replicated"])
def test_ranks_count_by_the_weights_of_their_examples(ranks, kind):
    world, found = ranks
    check_equal(found, ("weighted", kind), weighted(None, None, world), 1e-7)  # weights: float32


def test_a_learner_of_parts_goes_on_from_its_state(ranks):
    _, found = ranks
    for own in found:
        first, second = own["resumed"]
        assert all(map(torch.equal, first, second))


def test_gradients_may_be_held_back_within_a_row(ranks):
    world, found = ranks
    check_equal(found, "held back", held_back(world, None, last=1))


def test_gradients_that_are_held_back_from_a_row_are_refused(ranks):
    _, found = ranks
    for own in found:
        for said in own["refused to hold back"]:
            assert "FSDP2 holds back gradients" in said


def test_a_policy_of_mixed_precision_leaves_whole_gradients(ranks):
    _, found = ranks
    for own in found:
        for ours, others in zip(own["low precision"], found[0]["low precision"], strict=True):
            assert ours.dtype is torch.float32
            assert ours.isfinite().all()
            assert torch.equal(ours, others)


def test_a_partial_gradient_is_added_up_first(ranks):
    world, found = ranks
    total = torch.arange(4.0 * world).double().view(world, 4).sum(0)
    rows = torch.stack([3 * total, 2 * total])
    for own in found:
        gram, losses = own["partial"]
        torch.testing.assert_close(gram, rows @ rows.T)
        torch.testing.assert_close(losses, rows.sum(1))


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_what_is_not_finite_in_one_rank_s_part_is_refused_on_all(ranks, rule, waits):
    _, found = ranks
    said = {own["not finite", name(rule), waits] for own in found}
    assert len(said) == 1
    assert "gradient" in said.pop()


def test_a_batch_that_one_rank_cannot_take_is_refused_on_all(ranks):
    world, found = ranks
    (said, weights), *others = (own["bad batch"] for own in found)
    assert f"Rank {world - 1} of the process group cannot take this step" in said
    for other_said, other_weights in others:
        assert other_said == said
        assert all(map(torch.equal, weights, other_weights))


def test_what_is_not_supported_is_refused_by_name(ranks):
    _, found = ranks
    for own in found:
        assert "process_group must hold all of them" in own["refusals"]["alone"]
        assert "a penalty is not supported" in own["refusals"]["penalty"]


def test_replicas_of_a_part_that_differ_or_are_averaged_by_nobody_are_refused(ranks):
    world, found = ranks
    if world == 4:
        for own in found:
            assert "sharded over 2 ranks, and the step is taken by 4" in own["split and copied"]
            assert "are held by several ranks and differ" in own["other replica"]
