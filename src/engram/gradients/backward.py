"""Losses in, the mixture of their gradients out: a step's whole mixture in one call."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.gradients.finite import Check
from engram.gradients.gram import Gradient, check_rows
from engram.gradients.mixing import (
    Mix,
    check_gradient,
    check_reached,
    check_rule,
    clear_gradients,
    mix_rows,
    weigh,
)
from engram.gradients.parallel import (
    GroupChoice,
    Names,
    Ranks,
    check_group,
    raise_on_all,
    ranks_of,
    shards_for,
)
from engram.gradients.sharded import (
    has_parts,
    own_parts,
    refuse_pending,
    whole_number,
    whole_parameters,
)
from engram.rules import Rule

if TYPE_CHECKING:
    from torch.amp import GradScaler

CURRENT = "current"
"""The name of the row of the current batch."""


class NamedLoss(NamedTuple):
    """A loss of a row, or of a part of it."""

    name: Hashable
    loss: Tensor
    value: Tensor | float | None
    """What the rule compares; None for the loss itself."""
    examples: float = 1.0
    """Of how many examples it is the mean: by them ranks count."""


def backward(
    losses: Sequence[Tensor],
    parameters: Iterable[Tensor],
    rule: Rule,
    *,
    values: Sequence[Tensor | float] | None = None,
    process_group: GroupChoice = None,
    check_finite: bool = True,
) -> Mix:
    """Set ``.grad`` to the rule's mixture of the gradients of ``losses``, the current one first.

    Where the rule needs no Gram matrix this is one backward pass of the re-weighted loss
    ``(weights * losses).sum()``, else one pass a loss. The losses may share a graph.

    Args:
        losses: the current loss, then the reference losses.
        parameters: the vector that is differentiated; what their ``.grad`` held is replaced.
        rule: how the rows are weighed.
        values: what the rule compares, >= 0 each, where it is not the losses themselves.
        process_group: the ranks that take the step together, as for a `GradientMixer`.
        check_finite: whether a loss or a gradient that is not finite is refused, and ``.grad``
            left None. On a GPU the host waits for the answer in every call; a `GradientMixer` does
            not. With False, what is not finite is found in ``.grad`` and in the ``Mix``.

    >>> import torch
    >>> from engram.rules import MEGA1
    >>> weight = torch.tensor([2.0], requires_grad=True)
    >>> loss, memory_loss = (weight - 1).square().sum(), weight.square().sum()
    >>> backward([loss, memory_loss], [weight], MEGA1()).weights
    tensor([1., 4.])
    >>> weight.grad
    tensor([18.])
    """
    check_group(process_group)
    ranks = ranks_of(process_group, rule)
    try:
        check_rule(rule)
        unique = _unique(parameters)
        shards = shards_for(unique, ranks)
        compared = _compared(losses, values)
        names = _names([None] * len(losses))
        # FSDP2's passes are taken one by one: each is whole then, whatever they share.
        one_by_one = rule.needs_gram or shards is not None
        rows = _differentiate_each(losses, unique) if one_by_one else []
        if shards is not None:
            rows = shards.aligned(rows)
        if ranks is not None:
            check_rows([own_parts(row) for row in rows])
    except Exception as error:
        raise_on_all(ranks, error)
        raise
    if not one_by_one:
        return _mix_once(rule, names, losses, compared, unique, ranks, check=check_finite)
    if ranks is not None:
        names, compared, rows = ranks.average_rows(
            names, compared, rows, unique, unique, absent=False
        )
    return mix_rows(rule, names, compared, rows, unique, check=check_finite, shards=shards)


def backward_each(
    losses: Iterable[tuple[Tensor, Tensor | float]],
    parameters: Iterable[Tensor],
    rule: Rule,
    *,
    process_group: GroupChoice = None,
    check_finite: bool = True,
) -> Mix:
    """Do what `backward` does for losses that come one by one: one graph is there at a time.

    Args:
        losses: pairs of a loss and the value that the rule compares, best from a generator; the
            reference losses first, the current one last.
        parameters: the vector that is differentiated; what their ``.grad`` held is replaced.
        rule: how the rows are weighed.
        process_group: the ranks that take the step together, as for a `GradientMixer`.
        check_finite: as for `backward`.

    >>> import torch
    >>> from engram.rules import MEGA2
    >>> weight = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> losses = ((loss, loss) for loss in (9 * weight[1], 3 * weight[0]))
    >>> backward_each(losses, [weight], MEGA2()).losses
    tensor([ 9., 36.])
    """
    check_group(process_group)
    ranks = ranks_of(process_group, rule)
    try:
        check_rule(rule)
        unique = _unique(parameters)
    except Exception as error:
        raise_on_all(ranks, error)
        raise
    return _mix_each(_pairs(losses), unique, rule, ranks, check=check_finite)


def mix_losses(
    losses: Iterable[NamedLoss],
    parameters: Sequence[Tensor],
    rule: Rule,
    *,
    process_group: GroupChoice,
    check: Check,
    one_by_one: bool = False,
    scaler: GradScaler | None = None,
) -> Mix:
    """Do what `backward` does, for losses that are computed here, each when its turn has come.

    An error in computing them is one on every rank. The current loss comes last. A row that only
    some ranks have is the mean of theirs. Losses that come one after the other under one name are
    parts of a row, and add up; for those, ``one_by_one`` lets one graph be there at a time whatever
    the rule is. With a scaler the mixture comes scaled, as `GradientMixer` leaves it.
    """
    ranks = ranks_of(process_group, rule)
    # A GPU forms the sum in a few launches, and would have to hold the graphs of all losses at once
    # for one pass to be enough. Between ranks one gradient is sent instead of several.
    alone_on_gpu = ranks is None and any(each.is_cuda for each in parameters)
    one_by_one = one_by_one or rule.needs_gram or alone_on_gpu
    if one_by_one or scaler is not None or has_parts(parameters):
        return _mix_each(losses, parameters, rule, ranks, check=check, absent=True, scaler=scaler)
    try:
        shards_for(parameters, ranks)  # which refuses what it does not know
        given = list(losses)
        given.insert(0, given.pop())
        names = [each.name for each in given]
        rows = [each.loss for each in given]
        counts = [each.examples for each in given]
        for loss in rows:
            check_loss(loss)
        values = [compared_value(each.loss, each.value) for each in given]
    except Exception as error:
        raise_on_all(ranks, error)
        raise
    return _mix_once(
        rule, names, rows, values, parameters, ranks, check=check, absent=True, counts=counts
    )


def _mix_each(
    losses: Iterable[NamedLoss],
    parameters: Sequence[Tensor],
    rule: Rule,
    ranks: Ranks | None,
    *,
    check: Check,
    absent: bool = False,
    scaler: GradScaler | None = None,
) -> Mix:
    """Differentiate each loss by itself, one graph at a time; the current one comes last."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    clear_gradients(parameters)  # before the forward passes, which need the memory
    given: list[Hashable] = []
    values: list[Tensor] = []
    counts: list[float] = []
    rows: list[Gradient] = []
    try:
        shards_for(parameters, ranks)
        shards = shards_for(trained, ranks)
        for name, loss, value, examples in losses:
            check_loss(loss)
            compared = compared_value(loss, value)
            scaled = loss if scaler is None else scaler.scale(loss)
            if name is not None and given and given[-1] == name:  # another part of this row
                values[-1] = values[-1] + compared
                counts[-1] += examples
                rows[-1] = differentiate(scaled, trained, rows[-1])
                continue
            given.append(name)
            values.append(compared)
            counts.append(examples)
            rows.append(differentiate(scaled, trained))
        if not rows:
            raise EngramError("losses must hold the current loss at least, and there is none.")
        given.insert(0, given.pop())
        values.insert(0, values.pop())
        counts.insert(0, counts.pop())
        rows.insert(0, rows.pop())
        if shards is not None:
            rows = shards.aligned(rows)
        if ranks is not None:
            check_rows([own_parts(row) for row in rows])
    except Exception as error:
        raise_on_all(ranks, error)
        raise
    names = _names(given)
    if ranks is not None:
        names, values, rows = ranks.average_rows(
            names, values, rows, trained, parameters, absent=absent, counts=counts
        )
    scale = None if scaler is None else scaler.scale(torch.ones_like(values[0]))
    return mix_rows(rule, names, values, rows, trained, scale=scale, check=check, shards=shards)


def _mix_once(
    rule: Rule,
    names: Names,
    losses: Sequence[Tensor],
    values: Sequence[Tensor],
    parameters: Sequence[Tensor],
    ranks: Ranks | None,
    *,
    check: Check,
    absent: bool = False,
    counts: Sequence[float] | None = None,
) -> Mix:
    """Differentiate the re-weighted loss, for a rule that does not compare gradients."""
    clear_gradients(parameters)  # first: whatever is refused, no optimiser finds the last step's
    shares = dict.fromkeys(names, 1.0)
    if ranks is not None:  # every rank weighs the same values
        shares, values = ranks.average_values(
            names, values, parameters, absent=absent, counts=counts
        )
    mix = weigh(rule, [*shares], values, check=check)
    weights = dict(zip(shares, mix.weights.unbind(), strict=True))
    try:
        own = _differentiate_sum(
            losses, [weights[name] * shares[name] for name in names], parameters, ranks
        )
        if ranks is not None:
            mean = ranks.average_gradient(own, parameters, parameters)
            for parameter, gradient in zip(parameters, mean, strict=True):
                parameter.grad = gradient
        check_reached([[parameter.grad for parameter in parameters]], parameters)
        if check is not False:
            check_gradient(rule, [*shares], mix, parameters, (), check)
    except BaseException:
        clear_gradients(parameters)  # of a part of it, no optimiser is to take a step
        raise
    return mix


def _differentiate_sum(
    losses: Sequence[Tensor],
    weights: Sequence[Tensor],
    parameters: Sequence[Tensor],
    ranks: Ranks | None,
) -> Gradient:
    """Write the gradient of the weighted sum of the losses to ``.grad``, in one pass."""
    shares = zip(weights, losses, strict=True)
    try:
        torch.autograd.backward(losses, [w.to(loss.dtype).view(loss.shape) for w, loss in shares])
        gradient = [parameter.grad for parameter in parameters]
        if ranks is not None:
            check_rows([gradient])
    except Exception as error:
        raise_on_all(ranks, error)
        raise
    return gradient


def differentiate(
    loss: Tensor,
    parameters: Sequence[Tensor],
    known: Gradient | None = None,
    *,
    retain_graph: bool = False,
    whole: bool = True,
) -> Gradient:
    """Return the loss's gradient, added to the ``known`` one, and leave every ``.grad`` None.

    With ``whole`` it is an error if FSDP2 holds a part of it back for later.
    """
    try:
        for place, parameter in enumerate(parameters):
            parameter.grad = None if known is None else known[place]
        torch.autograd.backward(loss, retain_graph=retain_graph)
        if whole:
            refuse_pending(parameters)
        found = [parameter.grad for parameter in parameters]
        # A complex number's conjugate may leave one that is only marked as negated, which neither
        # numpy nor a kernel looks at.
        return [
            each.resolve_neg() if each is not None and each.is_neg() else each for each in found
        ]
    finally:
        clear_gradients(parameters)


def _differentiate_each(losses: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Gradient]:
    """Differentiate each loss; a graph that they share is kept up to the last."""
    *others, last = losses
    keep = _share_a_graph(losses)
    try:
        rows = [differentiate(loss, parameters, retain_graph=keep) for loss in others]
    except RuntimeError as error:
        if "donated buffer" not in str(error):
            raise
        # What torch.compile makes may refuse to keep its graph: then each loss has one of its own.
        rows = [differentiate(loss, parameters) for loss in others]
    return [*rows, differentiate(last, parameters)]


def _share_a_graph(losses: Sequence[Tensor]) -> bool:
    """Tell whether a part of one loss's graph is one of another's, parameters aside."""
    known = set[Any]()
    for loss in losses:
        own = {loss.grad_fn}
        left = [loss.grad_fn]
        while left:
            node = left.pop()
            for each, _ in node.next_functions if node is not None else ():
                if each is None or each in own or type(each).__name__ == "AccumulateGrad":
                    continue
                own.add(each)
                left.append(each)
        if not known.isdisjoint(own):
            return True
        known |= own
    return False


def check_loss(loss: Tensor) -> None:
    """Refuse a loss that has no gradient."""
    if not isinstance(loss, Tensor):
        raise EngramError(f"loss must be a tensor, not {type(loss).__name__}.")
    if loss.is_nested or loss.layout is not torch.strided:
        kind = "nested" if loss.is_nested else str(loss.layout)
        raise EngramError(f"loss must be a plain tensor of one number, not a {kind} one.")
    if loss.is_complex() or loss.is_meta or loss.is_quantized:
        raise EngramError(f"loss must be a real number, not {loss.dtype} on {loss.device}.")
    if loss.numel() != 1:
        raise EngramError(
            f"loss must be a single number, not a tensor of shape {list(loss.shape)}; "
            "take its mean or its sum."
        )
    if not loss.requires_grad:
        raise EngramError(
            "loss must require a gradient; compute it from trainable parameters, outside "
            "torch.no_grad() and without detach()."
        )


def compared_value(loss: Tensor, value: Tensor | float | None) -> Tensor:
    """Return what the rule compares, by default the loss itself, in float32 or better."""
    dtype = loss.dtype if loss.dtype in (torch.float32, torch.float64) else torch.float32
    own = value is None or value is loss
    if isinstance(value, Tensor):
        value = whole_number(value)
    number = whole_number(loss) if own else _number(value, dtype, loss.device)
    if number.dtype is not dtype or number.dim():
        number = number.to(dtype).reshape(())
    return number.detach()


def _number(value: object, dtype: torch.dtype, device: torch.device) -> Tensor:
    try:
        if isinstance(value, Tensor) and (value.is_complex() or value.is_meta or value.is_nested):
            raise TypeError
        number = torch.as_tensor(value, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise EngramError(f"value must be a single number, not {shown(value)}.") from None
    if number.numel() != 1:
        raise EngramError(
            f"value must be a single number, not a tensor of shape {list(number.shape)}."
        )
    return number


def _names(given: Sequence[Hashable]) -> Names:
    """Return the names of the rows, the current one first; of those that have none (None) too."""
    _, *references = given
    if None in references:
        count = len(references)
        references = [f"memory {k}" for k in range(1, count + 1)] if count > 1 else ["memory"]
    return [CURRENT, *references]


def _pairs(losses: Iterable[tuple[Tensor, Tensor | float]]) -> Iterator[NamedLoss]:
    if not isinstance(losses, Iterable):
        raise EngramError(f"losses must be pairs of a loss and its value, not {shown(losses)}.")
    for pair in losses:
        try:
            loss, value = pair
        except (TypeError, ValueError):
            raise EngramError(
                f"losses must be pairs of a loss and its value, and one is {shown(pair)}."
            ) from None
        yield NamedLoss(None, loss, value)


def _unique(parameters: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(parameters, Tensor):  # iterating over one gives its rows, which are no leaves
        raise EngramError("parameters must be a collection of tensors, not one tensor.")
    try:
        unique = list({id(parameter): parameter for parameter in parameters}.values())
    except TypeError:
        raise EngramError(
            f"parameters must be a collection of tensors, not {shown(parameters)}."
        ) from None
    for parameter in unique:
        if not isinstance(parameter, Tensor):
            raise EngramError(f"parameters must be tensors, and one is {shown(parameter)}.")
    if not unique and not isinstance(parameters, Sized):
        raise EngramError(
            "parameters gives none: an iterator, such as model.parameters(), gives them once; "
            "call it for every step, or make a list of it."
        )
    return whole_parameters(unique)


def _compared(losses: Sequence[Tensor], values: Sequence[Tensor | float] | None) -> list[Tensor]:
    if not isinstance(losses, Sequence):
        raise EngramError(f"losses must be a list of tensors, not {shown(losses)}.")
    if values is not None and not isinstance(values, Sequence):
        raise EngramError(f"values must be a list of numbers, not {shown(values)}.")
    if not losses:
        raise EngramError("losses must hold the current loss at least, and it is empty.")
    if values is not None and len(values) != len(losses):
        raise EngramError(
            f"values must be as many as losses, {len(losses)}, and there are {len(values)}."
        )
    for loss in losses:
        check_loss(loss)
    if values is None:
        return [compared_value(loss, None) for loss in losses]
    return [compared_value(*pair) for pair in zip(losses, values, strict=True)]
