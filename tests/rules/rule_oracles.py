"""Independent ways to the same numbers, in float64, from the vectors themselves."""

import math

import numpy as np
import torch
from scipy.optimize import minimize_scalar


def gram_of(rows):
    """All dot products of the rows [..., n, d], in their own dtype."""
    return rows @ rows.mT


def pair(angle_from_opposite, *, dimensions=50, lengths=(1.0, 1.0), seed=0):
    """Two random float64 vectors, so many radians from opposite, accurate for any small angle."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.randn(dimensions, 2, dtype=torch.float64, generator=generator)
    first, second = torch.linalg.qr(basis).Q.T
    reference = -math.cos(angle_from_opposite) * first + math.sin(angle_from_opposite) * second
    return torch.stack([lengths[0] * first, lengths[1] * reference])


def objective(losses, angle_between, angle):
    """What MEGA-II maximises over the angle between the update and the current gradient."""
    return losses[0] * np.cos(angle) + losses[1] * np.cos(angle_between - angle)


def best_angle(losses, angle_between, largest=math.pi):
    """The maximiser by brute force: a grid, then a bounded search around its best point."""
    grid = np.linspace(0, largest, 2001)
    middle = grid[np.argmax(objective(losses, angle_between, grid))]
    step = grid[1]
    found = minimize_scalar(
        lambda angle: -objective(losses, angle_between, angle),
        bounds=(max(0.0, middle - step), min(largest, middle + step)),
        method="bounded",
        options={"xatol": 1e-12},
    ).x
    ends = [0.0, found, largest]
    return max(ends, key=lambda angle: objective(losses, angle_between, angle))


def authors_angle(losses, angle_between, seed=0):
    """The angle as the released code finds it: eleven clamped steps from three random starts."""
    ratio = losses[1] / losses[0]
    angle = np.random.default_rng(seed).uniform(0, math.pi / 2, size=3)
    for _ in range(11):
        slope = -np.sin(angle) + ratio * np.sin(angle_between - angle)
        angle = np.clip(angle + slope / (1 + ratio), 0, math.pi / 2)
    return angle[np.argmax(objective(losses, angle_between, angle))]


def rotated(rows, angle):
    """The current gradient, turned by the angle towards the reference, in their plane."""
    current, reference = rows
    along = current / current.norm()
    across = reference - (reference @ along) * along
    return current.norm() * (math.cos(angle) * along + math.sin(angle) * across / across.norm())


def paper_weights(losses, rows):
    """The paper's appendix: closed-form angle, then a and b, with the square its text lost."""
    current, reference = rows
    g, r, product = current.norm().item(), reference.norm().item(), (current @ reference).item()
    between = math.acos(product / (g * r))
    k = losses[0] / losses[1]
    angle = math.pi / 2 - math.atan((k + math.cos(between)) / math.sin(between))
    here, there = math.cos(angle), math.cos(between - angle)
    denominator = g**2 * r**2 - product**2
    a = (r**2 * g**2 * here - product * g * r * there) / denominator
    b = (-product * g**2 * here + g**3 * r * there) / denominator
    return a, b
