"""The updates of the paper, worked out by hand from whole gradient vectors in float64."""

import math

import quadprog
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal

POOLED = [Equal(), AGEM(), MEGA1(), MEGA2()]
RULES = [Current(), *POOLED, GEM(ridge=0.0)]


def network(seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)


def sgd(model, rate=0.1):
    return torch.optim.SGD(model.parameters(), lr=rate)


def examples(seed, count, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    return inputs.to(dtype), torch.randint(3, (count,), generator=generator)


def loss_on(model, batch):
    inputs, classes = batch
    return cross_entropy(model(inputs), classes)


def gradient(loss, parameters) -> Tensor:
    """Return the gradient as one vector, zeros where a parameter is not reached."""
    parameters = list(parameters)
    parts = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    pairs = zip(parts, parameters, strict=True)
    dense = [torch.zeros_like(parameter) if part is None else part for part, parameter in pairs]
    return torch.cat([part.flatten() for part in dense])


def written(parameters) -> Tensor:
    """Return what is in ``.grad`` as one vector."""
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    return torch.cat([part.flatten() for part in parts])


def update_by_hand(rule, losses, rows):
    """Return the update of a rule in the paper's words; ``rows`` are vectors, the current first."""
    g, *references = rows
    if isinstance(rule, Current) or not references:
        return g
    if isinstance(rule, GEM):
        return _gem(rule, g, torch.stack(references))
    (r,) = references
    current, reference = (float(loss.detach()) for loss in losses)
    if isinstance(rule, Equal):
        return g + r
    if isinstance(rule, AGEM):
        return g - (g @ r) / (r @ r) * r if g @ r < 0 else g
    if isinstance(rule, MEGA1):
        return g + reference / current * r if current > rule.epsilon else r
    return _mega2(current / reference, g, r)


def _mega2(k, g, r):
    between = math.acos(g @ r / (g.norm() * r.norm()))
    angle = math.pi / 2 - math.atan((k + math.cos(between)) / math.sin(between))
    along = math.sin(between - angle) / math.sin(between)
    towards = g.norm() / r.norm() * math.sin(angle) / math.sin(between)
    return along * g + towards * r


def _gem(rule, g, past):
    if (past @ g >= 0).all():
        return g
    matrix, linear = (past @ past.T).numpy(), (past @ g).numpy()
    size = len(linear)
    lower = torch.full((size,), rule.margin, dtype=torch.float64).numpy()
    identity = torch.eye(size, dtype=torch.float64).numpy()
    shares = quadprog.solve_qp(matrix, -linear, identity, lower)[0]
    return g + torch.from_numpy(shares) @ past
