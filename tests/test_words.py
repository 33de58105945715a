"""Names in the source are the field's words: those of our own that were retired stay away."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "engram"

RETIRED = {
    "told": "message",
    "tell": "message",
    "lay": "stage_examples",
    "laid": "stage_examples",
    "crew": "WorkerPool",
    "hand out": "dispatch",
    "heard": "poll",
    "course": "RunState",
    "lesson": "BenchmarkSession",
    "books": "ledger",
    "filing": "ledger",
    "seat": "slot",
    "seats": "slots",
    "newcomer": "candidate",
    "newcomers": "candidates",
    "trusting": "untrusted_input",
    "pull": "penalty_weight",
    "fall": "path_integral",
    "duel": "PairedComparison",
    "rooms": "packages",
    "in hand": "current",
    "way back": "backward",
}
"""What to say in place of each, wherever it is part of a name."""

RETIRED_CLASSES = {
    "Shift": "WorkerPool",
    "Entries": "ledger",
    "Recorded": "CudaGraphLoop",
    "Replayed": "CudaGraphFunction",
    "Standard": "PaperDefaults",
}
"""These are ordinary words in other names."""

PENALTIES = {"penalty.py", "importance.py", "ewc.py", "mas.py", "pi.py", "rwalk.py"}
LAYERS = {"mlp.py", "layers.py"}
RETIRED_IN = {
    "held": ("anchor", PENALTIES),
    "before": ("grad_input", LAYERS),
    "learn": ("grad_weight", LAYERS),
}
"""Ordinary words too, but not as names of their own in these files."""


def names(code: str) -> Iterator[tuple[int, str]]:
    """Yield every name that a source gives or uses, with its line."""
    for node in ast.walk(ast.parse(code)):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield line, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield line, name
            case ast.ClassDef(name=name):
                yield line, name
            case ast.keyword(arg=str(name)) | ast.ExceptHandler(name=str(name)):
                yield line, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield line, name
            case ast.alias(name=name, asname=other):
                yield from ((line, part) for part in (*name.split("."), *filter(None, [other])))
            case ast.Global(names=several) | ast.Nonlocal(names=several):
                yield from ((line, name) for name in several)


def words(name: str) -> str:
    """Return a name's words in small letters, split at underscores and capitals."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)
    return " ".join(part.lower() for part in parts)


def replacement(name: str, file: str = "") -> str | None:
    """Return what to say in place of a retired word in a name, or None if there is none in it."""
    found = [say for word, say in RETIRED.items() if f" {word} " in f" {words(name)} "]
    found += [
        say for word, (say, files) in RETIRED_IN.items() if file in files and words(name) == word
    ]
    return next(iter(found), RETIRED_CLASSES.get(name.lstrip("_")))


def test_no_retired_word_is_a_name_in_the_source():
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {name} (say {say})"
        for file in sorted(SOURCE.rglob("*.py"))
        for line, name in [(0, file.stem), *names(file.read_text("utf-8"))]
        if (say := replacement(name, file.name))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "class Books: pass",
        "class _Shift: pass",
        "def hand_out(unit): ...",
        "pool.handOut(unit)",
        "told_chance = 1",
        "def f(*, add_fall): ...",
        "f(the_way_back=1)",
        "import engram.lesson as ours",
        "from engram import rooms",
        "lambda newcomer: 1",
        "try: ...\nexcept OSError as heard: ...",
    ],
)
def test_a_retired_word_is_found(code):
    assert any(replacement(name) for _, name in names(code))


@pytest.mark.parametrize(
    "code",
    [
        "class Entry: pass",
        "entries = [recorded, replayed]",
        "torch.bitwise_left_shift(x, shift)",
        "standard_normal(layers, overlay)",
        "held_out(pulled, fallback, hand, out)",
    ],
)
def test_ordinary_words_are_left_alone(code):
    assert not any(replacement(name) for _, name in names(code))


def test_some_words_are_retired_where_they_had_a_meaning_of_our_own():
    assert replacement("held", "ewc.py") == "anchor"
    assert replacement("held", "mer.py") is None
    assert replacement("learn", "mlp.py") == "grad_weight"
    assert replacement("_before", "layers.py") == "grad_input"
    assert replacement("before_it", "module.py") is None
