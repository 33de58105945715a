"""What the records of a run's steps say as a whole: the paper's analysis of MEGA-I."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engram.protocol._records import Steps
from engram.rules import MEGA1, MEGA2, Rule

Numbers = NDArray[np.float64]
Facts = dict[str, int | float | str]

_BINS_PER_UNIT = 4  # of the histogram of log k2


def step_facts(steps: Steps, rule: Rule | None) -> Facts:
    """Return how many steps were recorded, how k2 is distributed and, of MEGA-I, its angles.

    ``k2_below_1_percent`` is the share of steps with |g| < |r|, of those that read the memory.
    ``log_k2_histogram`` is ``FIRST: COUNT COUNT...``, a count for each quarter of the natural
    logarithm, the first from FIRST / 4 on.
    """
    facts: Facts = {"recorded_steps": len(steps["k2"])}
    k2 = steps["k2"].astype(np.float64)
    k2 = k2[~np.isnan(k2)]
    if not len(k2):
        return facts
    facts |= {"k2_below_1_percent": _percent(k2 < 1), "log_k2_histogram": _histogram(k2)}
    return facts | _angle_facts(steps) if isinstance(rule, MEGA1) else facts


def paper_cosine(k: Numbers, cosine: Numbers) -> Numbers:
    """Return (k + c) / sqrt(k² + 2 k c + 1), the paper's cosine of the angle between mix and g.

    c is the cosine of the angle between g and r. With k = k1 k2 it is MEGA-I's, cos θ1, with
    k = k1 MEGA-II's, cos θ2. It grows with k, so that k2 >= 1 implies θ1 <= θ2.
    """
    both: Numbers = (k + cosine) / np.sqrt(k * k + 2 * k * cosine + 1)
    return both


def _angle_facts(steps: Steps) -> Facts:
    """Compare the paper's two angles with each other and with those of the mixtures themselves.

    MEGA-I's mixture is the step that was taken; MEGA-II's is what its rule makes of the same
    losses and gradients. Only steps where MEGA-I weighs both gradients count, l_t > epsilon.
    """
    columns = ("k1", "k2", "cosine", "mixture_cosine", "current_weight", "reference_loss")
    k1, k2, cosine, mixture, weight, loss = (steps[name].astype(np.float64) for name in columns)
    read = ~np.isnan(k2)
    fit = read & (weight > 0) & (loss > 0) & np.isfinite(k2 * k1 * mixture) & (k2 > 0)
    facts: Facts = {"mixing_percent": _percent(fit[read])}
    if not fit.any():
        return facts
    k1, k2, cosine, mixture = k1[fit], k2[fit], cosine[fit], mixture[fit]
    first, second = paper_cosine(k1 * k2, cosine), paper_cosine(k1, cosine)
    return facts | {
        "theta_1_at_most_theta_2_percent": _percent(first >= second),
        "cos_theta_1_error": float(np.abs(first - mixture).max()),
        "cos_theta_2_error": float(np.abs(second - _mega2_cosine(k1, k2, cosine)).max()),
    }


def _mega2_cosine(k1: Numbers, k2: Numbers, cosine: Numbers) -> Numbers:
    """Return the cosine of the angle between g and MEGA-II's mixture, from its weights.

    Weights depend on the ratios alone, so |r| and l_ref may be taken as 1.
    """
    one = np.ones_like(k1)
    gram = np.stack([np.stack([k2 * k2, k2 * cosine], -1), np.stack([k2 * cosine, one], -1)], -2)
    losses = torch.from_numpy(np.stack([k1, one], -1))
    weights = MEGA2()(losses, torch.from_numpy(gram)).numpy()
    products = (gram @ weights[..., np.newaxis])[..., 0]
    length: Numbers = np.sqrt((products * weights).sum(-1))
    return products[..., 0] / k2 / length  # type: ignore[no-any-return]


def _histogram(k2: Numbers) -> str:
    positive = k2[(k2 > 0) & np.isfinite(k2)]
    if not len(positive):
        return "0:"
    places = np.floor(_BINS_PER_UNIT * np.log(positive)).astype(np.int64)
    counts = np.bincount(places - places.min())
    return f"{places.min()}: {' '.join(map(str, counts))}"


def _percent(holds: NDArray[Any]) -> float:
    return 100 * float(holds.mean())
