"""The conformance kit for rules: what every rule promises, and what one may claim beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.rules import Rule
from engram.rules.rule import RULES
from engram.testing.assertions import no_reads, require

_LENGTH = 7  # numbers of a gradient
_PROBLEMS = 24
_ROWS = {"none": (1, 2, 3), "pooled": (1, 2), "per task": (1, 2, 3, 5)}


class _Problems(NamedTuple):
    """Losses [problems, rows] and rows [problems, rows, length] that a rule is asked about."""

    losses: Tensor
    rows: Tensor

    @property
    def gram(self) -> Tensor:
        """The dot products, [problems, rows, rows]."""
        return self.rows @ self.rows.mT


def check_rule(
    rule: Rule | str,
    *,
    scale_free: bool = True,
    symmetric: bool = False,
    **fields: Any,  # noqa: ANN401
) -> list[str]:
    """Check a rule, or the one of a name with these fields; return the checks done.

    A promise that is not kept raises an AssertionError that says which one and where. Two are
    claims: ``scale_free``, that the unit of the gradients does not matter to the weights (what
    compares them with a number of its own is not), and ``symmetric``, that it does not matter in
    which order the memory's rows come.

    >>> check_rule("gem", symmetric=True)
    ['weights', 'alone', 'batched', 'finite', 'numbers', 'unread', 'scale', 'order']
    """
    made = RULES.get(rule)(**fields) if isinstance(rule, str) else rule
    if not isinstance(made, Rule):
        raise EngramError(f"rule must be the name of one, or a Rule, not {shown(rule)}.")
    checks: dict[str, Callable[[Rule], None]] = {
        "weights": _weights,
        "alone": _alone,
        "batched": _batched,
        "finite": _finite,
        "numbers": _numbers,
        "unread": _unread,
    }
    checks |= {"scale": _scale} if scale_free else {}
    checks |= {"order": _order} if symmetric else {}
    for check in checks.values():
        try:
            check(made)
        except AssertionError as broken:
            raise AssertionError(f"{made!r} {broken}") from broken
    return list(checks)


def _problems(rule: Rule, dtype: torch.dtype = torch.float64) -> Iterator[_Problems]:
    """Yield problems of as many rows as the rule takes: drawn, in conflict, parallel and absent."""
    require(
        getattr(rule, "reference", None) in _ROWS,
        "must have a `reference` that is none, pooled or per task.",
    )
    require(
        isinstance(getattr(rule, "needs_gram", None), bool), "must say whether it `needs_gram`."
    )
    source = torch.Generator().manual_seed(0)
    for count in _ROWS[rule.reference]:
        rows = torch.randn(_PROBLEMS, count, _LENGTH, generator=source, dtype=torch.float64)
        rows[0::4, 1:] -= 1.5 * rows[0::4, :1]  # the memory's oppose the batch's
        rows[1::4, 1:] = 2 * rows[1::4, :1]
        rows[2::8] *= 1e3
        rows[3, 1:] = 0
        losses = torch.rand(_PROBLEMS, count, generator=source, dtype=torch.float64)
        losses[4::5, -1] = 0
        yield _Problems(losses.to(dtype), rows.to(dtype))


def _ask(rule: Rule, problems: _Problems) -> Tensor:
    try:
        return rule(problems.losses, problems.gram if rule.needs_gram else None)
    except EngramError as error:
        raise AssertionError(f"is refused: {error}") from error


def _near(ours: Tensor, theirs: Tensor, problems: _Problems) -> bool:
    """Whether both mixtures are the same, as far as rounding lets weights be told apart."""
    rows = problems.rows.double()
    size = rows.square().sum(-1).amax(-1).sqrt().unsqueeze(-1)
    mixtures = [(each.double().unsqueeze(-1) * rows).sum(-2) for each in (ours, theirs)]
    apart = (mixtures[0] - mixtures[1]).abs().amax(-1, keepdim=True)
    return bool((apart <= 1e-4 * size.clamp(min=1e-300) * (1 + theirs.double().abs().amax())).all())


def _weights(rule: Rule) -> None:
    for dtype in (torch.float64, torch.float32):
        for problems in _problems(rule, dtype):
            weights = _ask(rule, problems)
            shape = list(problems.losses.shape)
            require(
                list(weights.shape) == shape and weights.dtype == dtype,
                f"returns weights {list(weights.shape)} of {weights.dtype} for losses {shape} of "
                f"{dtype}: both must be the same.",
            )
            require(
                bool(weights.isfinite().all()),
                f"returns weights that are not finite for {shape[1]} rows that are.",
            )
            require(not weights.requires_grad, "returns weights that carry autograd's graph.")


def _alone(rule: Rule) -> None:
    one = next(iter(_problems(rule)))
    require(bool((_ask(rule, one) == 1).all()), "does not give a single row the weight 1.")


def _batched(rule: Rule) -> None:
    for problems in _problems(rule):
        together = _ask(rule, problems)
        parts = [_Problems(losses, rows) for losses, rows in zip(*problems, strict=True)]
        apart = torch.stack([_ask(rule, part) for part in parts])
        require(
            _near(together, apart, problems),
            f"weighs {problems.losses.shape[1]} rows otherwise beside other problems than alone.",
        )
        folded = _Problems(*(each.view(2, -1, *each.shape[1:]) for each in problems))
        require(
            _near(_ask(rule, folded).flatten(0, 1), together, problems),
            "does not take two leading dimensions as it takes one.",
        )


def _finite(rule: Rule) -> None:
    for problems in _problems(rule):
        clean = _ask(rule, problems)
        losses = problems.losses.clone()
        losses[1, 0] = torch.nan
        marked = _ask(rule, problems._replace(losses=losses))
        require(
            bool(marked[1].isnan().all()),
            "gives weights that are not all NaN where a loss is not finite.",
        )
        rest = torch.arange(len(losses)) != 1
        others = _Problems(problems.losses[rest], problems.rows[rest])
        require(
            _near(marked[rest], clean[rest], others),
            "lets a loss that is not finite change the weights of its neighbours.",
        )


def _numbers(rule: Rule) -> None:
    for problems in _problems(rule):
        weights, gram = _ask(rule, problems), problems.gram
        found = [
            rule.weigh_numbers(
                losses.tolist(),
                gram[place].tolist() if rule.needs_gram else None,
                torch.finfo(torch.float64),
            )
            for place, losses in enumerate(problems.losses)
        ]
        require(
            _near(torch.tensor(found, dtype=torch.float64), weights, problems),
            "weighs plain numbers otherwise than tensors.",
        )


def _unread(rule: Rule) -> None:
    for problems in _problems(rule):
        _ask(rule, problems)
        try:
            with no_reads("cpu"):
                _ask(rule, problems)
        except AssertionError as broken:
            if (
                rule.reference == "per task"
            ):  # whose solvers may look on a CPU whether they are done
                return
            raise AssertionError(
                str(broken).replace("says that it is capturable, and ", "")
            ) from None


def _scale(rule: Rule) -> None:
    for problems in _problems(rule):
        for factor in (1e-3, 1e3):
            scaled = problems._replace(rows=factor * problems.rows)
            require(
                _near(_ask(rule, scaled), _ask(rule, problems), problems),
                "gives other weights in another unit of the gradients; if it should, check it with "
                "scale_free=False.",
            )


def _order(rule: Rule) -> None:
    for problems in _problems(rule):
        count = problems.losses.shape[1]
        order = torch.tensor([0, *range(count - 1, 0, -1)])
        turned = _Problems(problems.losses[:, order], problems.rows[:, order])
        require(
            _near(_ask(rule, turned), _ask(rule, problems)[:, order], turned),
            "weighs the memory's rows by the order they come in, and says that it is symmetric.",
        )
