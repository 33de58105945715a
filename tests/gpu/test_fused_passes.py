"""On a GPU: passes in fewer kernels give what the CPU's operations give."""

from itertools import pairwise
from math import prod

import pytest
import torch

from engram.lab.engine import Batch, Rows, cross_entropy
from engram.lab.networks import MLP, stacked
from engram.rules import GEM, MEGA1, MEGA2, Current

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SIZES = (784, 256, 256, 10)


def batch(runs, size, *, groups=1, classes=10, kind="plain", dtype=torch.float32):
    source = torch.Generator().manual_seed(size)
    inputs = torch.rand(runs, size, SIZES[0], generator=source, dtype=dtype)
    labels = torch.randint(classes, (runs, size), generator=source)
    made = Batch(inputs, labels, groups=groups)
    if kind == "weighted":
        made = made._replace(weights=torch.rand(runs, size, generator=source, dtype=dtype))
    if kind == "masked":
        mask = torch.rand(runs, size, classes, generator=source) < 0.5
        made = made._replace(outputs=mask.scatter(-1, labels.unsqueeze(-1), True))
    return made


def there(given):
    moved = [part.cuda() if isinstance(part, torch.Tensor) else part for part in given]
    return Batch(*moved)


def parameters(runs, network, device="cuda", dtype=torch.float32):
    """Draw weights with which a hidden unit is on for all inputs, or off for all.

    Next to 0 a rounding would decide it.
    """
    source = torch.Generator().manual_seed(0)
    lengths = [length for pair in pairwise(SIZES) for length in (prod(pair), pair[1])]
    drawn = []
    for _ in range(runs):
        flat = 0.01 * torch.randn(network.size, generator=source)
        _, *hidden, _, _ = flat.split(lengths)
        for biases in hidden[::2]:
            biases[::2] += 1
            biases[1::2] -= 1
        drawn.append(flat.to(dtype))
    return stacked(drawn, device)


@pytest.mark.parametrize("kind", ["plain", "weighted", "masked"])
@pytest.mark.parametrize(("size", "groups"), [(10, 1), (256, 1), (12, 3)])
@pytest.mark.parametrize("classes", [2, 10, 200])
def test_cross_entropy(kind, size, groups, classes):
    given = batch(3, size, groups=groups, classes=classes, kind=kind)
    logits = 5 * torch.randn(3, size, classes, generator=torch.Generator().manual_seed(size))
    losses, gradient = cross_entropy(logits.double(), given)
    ours, at_logits = cross_entropy(logits.cuda(), there(given))
    torch.testing.assert_close(ours.cpu().double(), losses, rtol=1e-5, atol=1e-6)
    # A share near 1 less 1: what is left of it is as exact as the share was.
    torch.testing.assert_close(at_logits.cpu().double(), gradient, rtol=1e-5, atol=5e-7)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_trouble_in_the_logits_stays_visible_and_at_home(bad):
    given, logits = batch(2, 10), torch.randn(2, 10, 10)
    logits[1, 3, 4] = bad
    losses, gradient = cross_entropy(logits.cuda(), there(given))
    assert losses.isfinite().flatten().tolist() == [True, False]
    assert gradient[0].isfinite().all()


@pytest.mark.parametrize("runs", [1, 2, 5])
@pytest.mark.parametrize(("size", "groups"), [(10, 1), (256, 1), (12, 3)])
def test_gradients(runs, size, groups):
    network, given = MLP(SIZES), batch(runs, size, groups=groups)
    exact = Rows(network, parameters(runs, network, "cpu", torch.float64))
    ours = Rows(network, parameters(runs, network))
    rows = exact.parameters.new_empty(runs, groups, network.size)
    losses = exact.gradients(given._replace(inputs=given.inputs.double()), rows)
    mine = ours.parameters.new_empty(runs, groups, network.size)
    told = ours.gradients(there(given), mine)
    torch.testing.assert_close(told.cpu().double(), losses, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine.cpu().double(), rows, rtol=1e-3, atol=1e-6)
    images = given.inputs[0]
    torch.testing.assert_close(
        network.predict(ours.parameters, images.cuda(), None).cpu().double(),
        network.predict(exact.parameters, images.double(), None),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("rule", [MEGA2(), MEGA1(), Current(), GEM()], ids=repr)
def test_steps_and_captured_steps(rule):
    network, groups = MLP(SIZES), 4 if isinstance(rule, GEM) else 1
    current, reference = batch(3, 10), batch(3, 256, groups=groups)
    plain, captured = (Rows(network, parameters(3, network)) for _ in range(2))
    exact = Rows(network, parameters(3, network, "cpu", torch.float64))
    here = there(current), there(reference)
    wide = [part._replace(inputs=part.inputs.double()) for part in (current, reference)]
    captured.step(rule, 0.01, *here)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step(rule, 0.01, *here)
    for _ in range(6):  # each from the same weights: roundings do not add up
        for rows in (captured, exact):
            rows.parameters.copy_(plain.parameters)
        plain.step(rule, 0.01, *here)
        graph.replay()
        exact.step(rule, 0.01, *wide)
        torch.testing.assert_close(captured.parameters, plain.parameters, rtol=1e-6, atol=1e-7)
        mine = plain.parameters.cpu().double()
        torch.testing.assert_close(mine, exact.parameters, rtol=1e-6, atol=1e-6)


def test_the_same_bits_each_time():
    """However the branches of a step happen to be interleaved."""
    network, ends = MLP(SIZES), []
    here = there(batch(5, 10)), there(batch(5, 256))
    for _ in range(5):
        rows = Rows(network, parameters(5, network))
        for _ in range(2):
            rows.step(MEGA2(), 0.01, *here)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # there are no branches elsewhere
            rows.step(MEGA2(), 0.01, *here)
        for _ in range(20):
            graph.replay()
        ends.append(rows.parameters.clone())
    assert all(torch.equal(end, ends[0]) for end in ends)


def test_runs_begin_where_a_gpu_reads_fastest():
    vectors = parameters(3, MLP(SIZES))
    assert all(vector.data_ptr() % 128 == 0 for vector in vectors)


def test_tf32_rounds_the_passes_a_little():
    given = there(batch(5, 256))
    rows = [Rows(MLP(SIZES, tf32=tf32), parameters(5, MLP(SIZES))) for tf32 in (False, True)]
    strict, rounded = (each.of(given, given)[1].clone() for each in rows)
    difference = (strict - rounded).norm() / strict.norm()
    assert 1e-6 < difference < 2e-2
