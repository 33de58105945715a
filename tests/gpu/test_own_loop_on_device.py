"""On a GPU, a user's own loop: the mixture of every layout, few launches, steps as CUDA graphs."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

import engram
from engram.errors import EngramError
from engram.memory import Memory, Reservoir
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Equal, Rule

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RULES = [Equal(), AGEM(), MEGA1(), MEGA2()]


def convolutions(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 1), nn.Flatten(), nn.Linear(180, 4)]
    return nn.Sequential(*layers)


class TwoHeads(nn.Module):
    """A part that both rows reach, a head for each, and weights that are used twice."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.shared, self.unused = nn.Linear(6, 6), nn.Linear(3, 3)
        self.heads = nn.ModuleList([nn.Linear(6, 4), nn.Linear(6, 4)])

    def forward(self, inputs, head):
        return self.heads[head](self.shared(self.shared(inputs).tanh()))


def images(seed, count=8):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 3, 8, 8, generator=generator)
    return inputs, torch.randint(4, (count,), generator=generator)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)


def kind(rule):
    return type(rule).__name__


def mixed(model, rule, losses):
    mixer = engram.GradientMixer(torch.optim.SGD(model.parameters(), lr=0.1), rule)
    for row, loss in losses.items():
        mixer.backward(loss, row=row)
    return mixer.mix()


@pytest.mark.parametrize("rule", RULES, ids=kind)
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_mixture_is_that_of_the_host_in_float64(rule, channels_last):
    exact, own = convolutions().double(), convolutions().cuda()
    if channels_last:
        own = own.to(memory_format=torch.channels_last)
    losses = {}
    # By default cuDNN takes TF32 for the gradient of a 1 x 1 convolution in channels-last images.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for model in (exact, own):
            for row, seed in [("current", 1), ("memory", 2)]:
                inputs, classes = images(seed)
                first = next(model.parameters())
                inputs = inputs.to(first)
                if channels_last and model is own:
                    inputs = inputs.contiguous(memory_format=torch.channels_last)
                losses[row] = cross_entropy(model(inputs), classes.to(first.device))
            mixed(model, rule, losses)
    for ours, truth in zip(own.parameters(), exact.parameters(), strict=True):
        assert ours.grad.stride() == ours.stride()
        torch.testing.assert_close(ours.grad.cpu().double(), truth.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_that_reach_different_parameters(dtype):
    model, exact = TwoHeads().to("cuda", dtype), TwoHeads().double()
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(3))
    classes = torch.arange(5) % 4
    for own in (model, exact):
        first = next(own.parameters())
        if own is exact:  # from the very weights
            own.load_state_dict(model.state_dict())
        given, wanted = inputs.to(first), classes.to(first.device)
        rows = {
            "current": cross_entropy(own(given, 0), wanted),
            "memory": cross_entropy(own(given + 1, 1), wanted),
        }
        mixed(own, MEGA2(), rows)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 3e-2}[dtype]
    for (name, ours), truth in zip(model.named_parameters(), exact.parameters(), strict=True):
        if "unused" in name:
            assert ours.grad is None
            continue
        difference = (ours.grad.cpu().double() - truth.grad).abs().max()
        assert difference <= tolerance * truth.grad.abs().max()


@pytest.mark.parametrize("count", [2, 9])
def test_dot_products_by_kernels_are_those_of_float64(count):
    """Of one large layer by itself, and of small ones that are put together."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(301, 203), nn.Tanh(), nn.Linear(203, 7), nn.Linear(7, 3))
    weights = [1.0] + [0.25] * (count - 1)

    class Given(Rule):
        reference, needs_gram = "per task", True

        def weigh(self, losses, _):
            return torch.tensor(weights, device=losses.device)

    found = []
    for own in (model.cuda(), copy.deepcopy(model).cpu().double()):
        first = next(own.parameters())
        rows = {}
        for row in range(count):
            inputs = torch.randn(8, 301, generator=torch.Generator().manual_seed(row))
            rows[row or "current"] = own(inputs.to(first)).square().mean()
        mix = mixed(own, Given(), rows)
        found.append([mix.gram, *(each.grad for each in own.parameters())])
    for ours, truth in zip(*found, strict=True):
        torch.testing.assert_close(ours.cpu().double(), truth, rtol=1e-4, atol=1e-6)


class Shifted(torch.autograd.Function):
    """What leaves a gradient that begins one number behind a multiple of 16 bytes."""

    @staticmethod
    def forward(_, weight):
        return weight.clone()

    @staticmethod
    def backward(_, gradient):
        behind = torch.empty(gradient.numel() + 1, device=gradient.device)[1:]
        return behind.copy_(gradient.flatten()).view_as(gradient)


@pytest.mark.parametrize("rule", RULES, ids=kind)
def test_gradients_at_any_address(rule):
    weight = torch.nn.Parameter(torch.randn(3, 5001, generator=torch.Generator().manual_seed(0)))
    grads = []
    for own in (nn.Parameter(weight.detach().cuda()), nn.Parameter(weight.detach().double())):
        through = Shifted.apply if own.is_cuda else lambda each: each
        mixer = engram.GradientMixer(torch.optim.SGD([own], lr=0.1), rule)
        mixer.backward((through(own) - 0.1).square().mean(), row="memory")
        mixer.backward((through(own) + 1).square().mean())
        mixer.mix()
        grads.append(own.grad.cpu().double())
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=kind)
def test_no_step_waits_for_the_host(rule):
    model = convolutions().cuda()
    optimizer = adamw(model)
    step = step_of(model, optimizer, engram.GradientMixer(optimizer, rule))
    batches = [each.cuda() for n in (0, 1) for each in images(n)]
    for _ in range(3):
        step(*batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            step(*batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def launches(step):
    step()
    both = [ProfilerActivity.CUDA, ProfilerActivity.CPU]
    with profile(activities=both, acc_events=True) as record:  # without it torch 2.11 warns
        step()
        torch.cuda.synchronize()
    return sum(each.count for each in record.key_averages() if "LaunchKernel" in each.key)


@pytest.mark.parametrize("rule", [AGEM(), MEGA1(), MEGA2()], ids=kind)
def test_a_mixture_takes_no_more_launches_for_a_deeper_model(rule):
    counts = []
    for layers in (4, 40):
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers))).cuda()
        mixer = engram.GradientMixer(adamw(model), rule)
        inputs = torch.randn(4, 8, device="cuda")

        def step(model=model, mixer=mixer, inputs=inputs):
            mixer.backward(model(inputs).square().mean())
            mixer.backward(model(inputs + 1).square().mean(), row="memory")
            mixer.mix()

        def passes(model=model, inputs=inputs):
            for shift in (0, 1):
                model.zero_grad()
                model(inputs + shift).square().mean().backward()

        counts.append(launches(step) - launches(passes))
    assert counts[1] <= counts[0] + 5 < 20


def step_of(model, optimizer, mixer):
    def step(inputs, classes, past_inputs, past_classes):
        mixer.backward(cross_entropy(model(past_inputs), past_classes), row="memory")
        mixer.backward(cross_entropy(model(inputs), classes))
        mix = mixer.mix()
        optimizer.step()
        return mix

    return step


@pytest.mark.parametrize("rule", RULES, ids=kind)
def test_captured_steps_are_the_steps(rule):
    trained = []
    for capture in (False, True):
        model = convolutions().cuda()
        optimizer = adamw(model)
        mixer = engram.GradientMixer(optimizer, rule)
        step = step_of(model, optimizer, mixer)
        if capture:
            step = mixer.capture(step)
        weights = []
        for seed in range(10):
            batches = [each.cuda() for n in (2 * seed, 2 * seed + 1) for each in images(n)]
            weights.append(step(*batches).weights)
        trained.append((torch.stack(weights), [each.detach() for each in model.parameters()]))
    torch.testing.assert_close(*trained, rtol=1e-4, atol=1e-6)


def test_batches_of_another_size_and_another_learning_rate():
    trained = []
    for capture in (False, True):
        model = convolutions().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mixer = engram.GradientMixer(optimizer, MEGA2())
        step = step_of(model, optimizer, mixer)
        if capture:
            step = mixer.capture(step)
        for number in range(20):
            count = 3 if number % 6 == 5 else 8
            optimizer.param_groups[0]["lr"] = 0.1 if number < 8 else 0.01
            batches = [each.cuda() for n in (number, 50) for each in images(n, count)]
            step(*batches)
        trained.append([each.detach() for each in model.parameters()])
    torch.testing.assert_close(*trained, rtol=1e-4, atol=1e-6)


def test_a_captured_step_that_is_not_finite_is_void_and_told():
    model = convolutions().cuda()
    optimizer = adamw(model)
    mixer = engram.GradientMixer(optimizer, MEGA2(), check_finite=5)
    step = mixer.capture(step_of(model, optimizer, mixer))
    batches = [each.cuda() for n in (0, 1) for each in images(n)]
    for _ in range(6):
        step(*batches)

    def steps(count):
        for _ in range(count):
            step(*batches)

    before = [each.detach().clone() for each in model.parameters()]
    step(batches[0] * math.nan, *batches[1:])
    with pytest.raises(EngramError, match="not finite; nothing was learnt since"):
        steps(5)
    for own, was in zip(model.parameters(), before, strict=True):
        assert torch.equal(own, was)
    step(*batches)
    assert not all(map(torch.equal, model.parameters(), before))


def test_what_cannot_be_captured_is_told():
    model = convolutions().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with pytest.raises(EngramError, match="AdamW needs capturable=True"):
        engram.GradientMixer(optimizer, MEGA2()).capture(lambda: None)
    optimizer = adamw(model)
    mixer = engram.GradientMixer(optimizer, MEGA2())

    def step(inputs, classes):
        loss = cross_entropy(model(inputs), classes)
        mixer.backward(loss)
        mixer.mix()
        optimizer.step()
        return loss.item()

    captured = mixer.capture(step)
    batch = [each.cuda() for each in images(0)]
    for _ in range(3):
        captured(*batch)
    with pytest.raises(EngramError, match="cannot be captured as a CUDA graph"):
        captured(*batch)
    step(*batch)  # and training goes on


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2(), GEM()], ids=kind)
def test_a_learner_holds_one_graph_at_a_time(rule):
    """The peak of memory is that of the larger pass, and a gradient for each reference."""
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))).cuda()
    gradient = sum(4 * each.numel() for each in model.parameters())
    inputs, classes = torch.randn(16384, 256).cuda(), torch.zeros(16384, dtype=torch.int64).cuda()
    memory = Memory(Reservoir(16384))
    memory.add((inputs, classes), tasks=0)
    learner = engram.Learner(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-3, fused=True),
        rule,
        memory,
        reference_batch=16384,
    )

    def peak(step):
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated()

    def plain():
        model.zero_grad()
        sample = memory.sample(16384)
        cross_entropy(model(sample.batch[0]), sample.batch[1]).backward()

    floor = peak(plain)
    model.zero_grad()
    assert peak(lambda: learner.observe(inputs, classes, task=1)) <= 1.02 * floor + gradient
