"""Numbers that are not known yet: what a formula does with them is written down, in C."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, Union

Operand: TypeAlias = Union["Symbol", float]


def _operator(form: str, *, reflected: bool = False) -> Callable[[Symbol, Operand], Symbol]:
    def operate(self: Symbol, other: Operand) -> Symbol:
        return Symbol(form, other, self) if reflected else Symbol(form, self, other)

    return operate


class Symbol:
    """A number, or a condition, told by the operation that makes it of others.

    ``form`` is that operation as C has it, ``{} + {}``, and ``operands`` are symbols and constants.
    An input has none, and its name for a form.
    """

    def __init__(self, form: str, *operands: Operand) -> None:
        self.form, self.operands = form, operands

    __add__, __radd__ = _operator("{} + {}"), _operator("{} + {}", reflected=True)
    __sub__, __rsub__ = _operator("{} - {}"), _operator("{} - {}", reflected=True)
    __mul__, __rmul__ = _operator("{} * {}"), _operator("{} * {}", reflected=True)
    __truediv__, __rtruediv__ = _operator("{} / {}"), _operator("{} / {}", reflected=True)
    __lt__, __le__ = _operator("{} < {}"), _operator("{} <= {}")
    __gt__, __ge__ = _operator("{} > {}"), _operator("{} >= {}")
    __and__ = _operator("{} && {}")

    def __neg__(self) -> Symbol:
        return Symbol("-{}", self)

    def __bool__(self) -> bool:
        raise TypeError("A formula cannot branch on a number that is not known yet.")

    def choose(self, yes: Operand, no: Operand) -> Symbol:
        """Return one value where this condition holds, and the other elsewhere."""
        return Symbol("{} ? {} : {}", self, yes, no)

    def clip(self, least: float, most: float | None = None) -> Symbol:
        """Return the value, or the bound that it exceeds; NaN exceeds none."""
        raised = (self < least).choose(least, self)
        return raised if most is None else (raised > most).choose(most, raised)

    def root(self) -> Symbol:
        """Return the square root."""
        return Symbol("sqrt({})", self)


def in_c(result: Operand) -> tuple[list[str], str]:
    """Return C's statements that compute a result, of numbers of a type T, and its name there."""
    statements, names = list[str](), dict[Symbol, str]()

    def name(operand: Operand) -> str:
        if not isinstance(operand, Symbol):
            return _constant(operand)
        if not operand.operands:
            return operand.form
        if operand not in names:
            made = operand.form.format(*map(name, operand.operands))
            names[operand] = f"v{len(names)}"
            statements.append(f"const auto {names[operand]} = {made};")
        return names[operand]

    named = name(result)
    return statements, named


def _constant(value: float) -> str:
    if math.isinf(value):
        return "T(INFINITY)" if value > 0 else "T(-INFINITY)"
    return f"T({float(value)!r})"
