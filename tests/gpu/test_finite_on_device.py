"""On a GPU: no step waits for the answer, and until it is asked for, bad steps are void."""

import contextlib
import math

import pytest
import torch
from torch import nn, optim
from torch.nn.functional import cross_entropy

import engram
from engram.errors import EngramError
from engram.memory import Fifo, Memory, TensorStorage
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RULES = [Current(), Equal(), AGEM(), MEGA1(), MEGA2(), GEM()]
FUSED = {
    "sgd": lambda held: optim.SGD(held, lr=0.1, fused=True),
    "momentum": lambda held: optim.SGD(held, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda held: optim.Adam(held, lr=0.01, fused=True),
    "adamw": lambda held: optim.AdamW(held, lr=0.01, fused=True),
}
OTHERS = {
    "sgd": lambda held: optim.SGD(held, lr=0.1),
    "momentum": lambda held: optim.SGD(held, lr=0.1, momentum=0.9),
    "adam": lambda held: optim.Adam(held, lr=0.01, foreach=True),
    "one by one": lambda held: optim.Adam(held, lr=0.01, foreach=False),
    "rmsprop": lambda held: optim.RMSprop(held, lr=0.01),
}
EVERY = {**{f"fused {name}": made for name, made in FUSED.items()}, **OTHERS}
ROWS = ["memory", "current"]


def kind(rule):
    return type(rule).__name__


@contextlib.contextmanager
def nothing_waits():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def network():
    torch.manual_seed(0)
    norms = nn.BatchNorm1d(7), nn.BatchNorm1d(7)
    layers = nn.Linear(5, 7), *norms, nn.Tanh(), nn.Linear(7, 3)
    return nn.Sequential(*layers).cuda()


def examples(seed, count=8):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 5, generator=generator)
    return inputs.cuda(), torch.randint(3, (count,), generator=generator).cuda()


BATCHES = [None] * 20  # filled by the first test: not where there is no GPU


@pytest.fixture(autouse=True)
def _batches():
    if BATCHES[0] is None:
        BATCHES[:] = [examples(seed) for seed in range(len(BATCHES))]


def bad_loss(_, loss):
    return loss * math.nan


def bad_gradient(model, loss):
    return loss + (model[0].weight * 0).sum().sqrt()


def negative(_, loss):
    return -loss


TROUBLES = [bad_loss, bad_gradient, negative]


class Loop:
    def __init__(self, made, rule, **options):
        self.model = network()
        self.optimizer = made(self.model.parameters())
        self.mixer = engram.GradientMixer(self.optimizer, rule, **options)

    def step(self, number, trouble=None):
        for place, row in enumerate(ROWS):
            inputs, classes = BATCHES[(2 * number + place) % len(BATCHES)]
            loss = cross_entropy(self.model(inputs), classes)
            if trouble is not None and row == "memory":
                loss = trouble(self.model, loss)
            self.mixer.backward(loss, row=row)
        self.mixer.mix()
        self.optimizer.step()

    def weights(self):
        return torch.cat([each.detach().flatten() for each in self.model.parameters()])


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=kind)
@pytest.mark.parametrize("name", EVERY)
def test_bad_steps_are_void_and_no_step_waits(name, rule, trouble):
    loop = Loop(EVERY[name], rule, check_finite=6)
    for number in range(2):  # the rule's kernel is compiled, the optimiser's state is made
        loop.step(number)
    before = loop.weights()
    with nothing_waits():
        loop.step(2, trouble)
        for number in (3, 4):
            loop.step(number)
    assert torch.equal(loop.weights(), before)
    with pytest.raises(EngramError, match=r"In step 3, the .*up to 6"):
        loop.step(5)
    assert torch.equal(loop.weights(), before)
    assert not hasattr(loop.optimizer, "found_inf")
    with nothing_waits():
        for number in range(6, 9):
            loop.step(number)
    assert loop.weights().isfinite().all()
    assert not torch.equal(loop.weights(), before)


@pytest.mark.parametrize("rule", RULES, ids=kind)
@pytest.mark.parametrize("name", ["fused sgd", "sgd"])
def test_every_rule_tells_of_a_loss_that_is_not_finite(name, rule):
    loop = Loop(EVERY[name], rule, check_finite=4)
    loop.step(0)
    before = loop.weights()
    loop.step(1, bad_loss)
    loop.step(2)
    assert torch.equal(loop.weights(), before)
    with pytest.raises(EngramError, match="In step 2, the row 'memory' has a loss of nan"):
        loop.mixer.settle()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", FUSED)
def test_a_fused_optimiser_goes_on_as_if_the_void_steps_had_never_been(name, first):
    """Without running averages: a mixer does not know of a model's buffers."""
    loop, twin = (Loop(FUSED[name], MEGA2(), check_finite=3) for _ in range(2))
    for each in (loop, twin):
        each.model.eval()
        for number in range(first):
            each.step(number)
    for number in range(first, 2):
        loop.step(number, bad_loss)
    with pytest.raises(EngramError, match=f"In step {first + 1}, the row 'memory'"):
        loop.step(2, bad_loss)
    for number in range(3, 6):
        loop.step(number)
        twin.step(number)
    assert torch.equal(loop.weights(), twin.weights())


@pytest.mark.parametrize("name", OTHERS)
def test_another_optimiser_keeps_a_finite_state(name):
    loop = Loop(OTHERS[name], MEGA2(), check_finite=2)
    loop.step(0, bad_loss)
    with pytest.raises(EngramError, match="In step 1, "):
        loop.step(1, bad_loss)
    states = [each for state in loop.optimizer.state.values() for each in state.values()]
    assert all(each.isfinite().all() for each in states if isinstance(each, torch.Tensor))


@pytest.mark.parametrize("rule", RULES, ids=kind)
def test_backward_waits_and_refuses_at_once(rule):
    model = network()
    for trouble in (bad_loss, bad_gradient):
        losses = [cross_entropy(model(inputs), classes) for inputs, classes in BATCHES[:2]]
        with pytest.raises(EngramError, match="the step is refused"):
            engram.backward([losses[0], trouble(model, losses[1])], model.parameters(), rule)
        assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_checked_without_an_overflow_of_its_own(dtype):
    weight = nn.Parameter(torch.zeros(100, dtype=dtype, device="cuda"))
    mixer = engram.GradientMixer(optim.SGD([weight], lr=0.1), MEGA1(), check_finite=1)
    mixer.backward((weight * 30_000).sum())
    mixer.mix()
    mixer.backward((weight * math.inf).sum().nan_to_num())
    with pytest.raises(EngramError, match="is not finite"):
        mixer.mix()


def learner(rule, storage=None, **options):
    def loss(model, batch, _):
        return cross_entropy(model(batch["x"]), batch["y"])

    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1, fused=True)
    memory = Memory(Fifo(100), storage)
    return engram.Learner(model, optimizer, rule, memory, loss=loss, **options)


def observe(own, number, trouble=False):
    inputs, classes = BATCHES[number]
    if trouble:
        inputs = inputs.clone()
        inputs[3, 2].fill_(math.nan)
    return own.observe({"x": inputs, "y": classes}, task=number // 4)


def known(own):
    return {name: tensor.clone() for name, tensor in own.model.state_dict().items()}


@pytest.mark.parametrize("place", [None, "cpu"])
@pytest.mark.parametrize("ask", ["observe", "settle", "end_task", "state_dict"])
@pytest.mark.parametrize("rule", RULES, ids=kind)
def test_weights_buffers_and_memory_stay_as_before_a_batch_of_nan(rule, ask, place):
    own, twin = (
        learner(rule, None if place is None else TensorStorage(place), check_finite=6)
        for _ in range(2)
    )
    for number in range(3):
        observe(own, number)
        observe(twin, number)
    before = known(own)
    observe(own, 3, trouble=True)
    observe(own, 4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in known(own).items())
    asked = {"observe": lambda: observe(own, 5)}
    with pytest.raises(EngramError, match="In step 4, the row 'current' has a loss of nan"):
        asked.get(ask, getattr(own, ask))()
    assert all(torch.equal(tensor, before[name]) for name, tensor in known(own).items())
    assert list(own.memory.examples()) == list(twin.memory.examples())
    for number in range(5, 8):
        observe(own, number)
        observe(twin, number)
    own.settle()
    assert all(torch.equal(tensor, known(twin)[name]) for name, tensor in known(own).items())


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=kind)
def test_no_step_of_a_learner_waits(rule):
    own = learner(rule, check_finite=10)
    for number in range(3):
        observe(own, number)
    with nothing_waits():
        for number in range(3, 6):
            observe(own, number)
    own.settle()


def test_without_the_check_the_memory_still_refuses_before_the_step():
    own = learner(MEGA2(), check_finite=0)
    observe(own, 0)
    before = known(own)
    with pytest.raises(EngramError, match="not finite"):
        observe(own, 1, trouble=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in known(own).items())
    assert len(own.memory) == 8


@pytest.mark.parametrize("name", ["fused sgd", "sgd"])
def test_a_captured_step_is_void_too(name):
    loop = Loop(EVERY[name], MEGA2())
    inputs = BATCHES[0][0].clone()

    def step():
        loss = cross_entropy(loop.model(inputs), BATCHES[0][1])
        loop.mixer.backward(cross_entropy(loop.model(BATCHES[1][0]), BATCHES[1][1]), row="memory")
        loop.mixer.backward(loss)
        loop.mixer.mix()
        loop.optimizer.step()

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    before = loop.weights()
    graph.replay()
    after = loop.weights()
    assert not torch.equal(after, before)
    inputs.fill_(math.nan)
    graph.replay()
    inputs.copy_(BATCHES[2][0])
    graph.replay()
    assert torch.equal(loop.weights(), after)
    with pytest.raises(EngramError, match="not finite"):
        loop.mixer.settle()
    graph.replay()
    assert not torch.equal(loop.weights(), after)
    assert loop.weights().isfinite().all()
