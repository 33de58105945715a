"""``engram list``: rules, policies, methods, benchmarks and networks, ours and those of plugins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from engram.app.cli.console import print_json
from engram.app.terminal import one_line
from engram.errors import EngramError, unknown
from engram.lab.benchmarks import PRESETS
from engram.lab.benchmarks.registry import BENCHMARKS
from engram.lab.methods.registry import listed as listed_methods
from engram.lab.networks.registry import NETWORKS
from engram.memory.policies import POLICIES
from engram.plugins import KINDS, Listed, load_files, loading_nothing
from engram.rules.rule import RULES


def _benchmarks() -> list[Listed]:
    return [*BENCHMARKS.listed(), *(Listed(name, "engram") for name in PRESETS)]


_LISTED: dict[str, Callable[[], list[Listed]]] = {
    "rules": RULES.listed,
    "policies": POLICIES.listed,
    "methods": listed_methods,
    "benchmarks": _benchmarks,
    "networks": NETWORKS.listed,
}


def list_kinds(kinds: Sequence[str], *, as_json: bool = False) -> None:
    """Print what there is of some kinds, or of all, a line each, and where it comes from.

    What is installed is listed without being loaded. A plugin file that is broken is named.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise unknown("kind of thing to list", kind, KINDS)
    with ExitStack() as stack:
        try:
            load_files()
        except EngramError as error:
            print(f"engram: {error}", file=sys.stderr)
            stack.enter_context(loading_nothing())
        found = {kind: [_short(each) for each in _LISTED[kind]()] for kind in kinds or KINDS}
    if as_json:
        print_json({kind: [each._asdict() for each in found[kind]] for kind in found})
        return
    width = max((len(each.name) for items in found.values() for each in items), default=0)
    for kind, items in found.items():
        print(kind)
        for each in items:
            refused = f" (refused: {each.refused})" if each.refused else ""
            print(one_line(f"  {each.name:<{width}}  {each.origin}{refused}"))


def _short(item: Listed) -> Listed:
    ours = item.origin.partition(".")[0] == "engram"
    return item._replace(origin="engram") if ours else item
