"""The lowest versions that pyproject.toml promises, as constraints: ``python tools/lowest.py``.

torch is left out: its lowest version is run on a GPU, and the environment of the tests has the one
that constraints.txt names.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_EXTRAS = ("images", "tables", "tensorboard")


def lowest() -> list[str]:
    """Return a pin for each dependency and for what the command line's extras need.

    >>> [pin.partition("==")[0] for pin in lowest()][-5:]
    ['matplotlib', 'jinja2', 'pillow', 'pyarrow', 'tensorboard']
    """
    project = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    needs = [*project["dependencies"], *(need for name in _EXTRAS for need in extras[name])]
    bounds = [re.fullmatch(r"([\w-]+)>=([\d.]+)", need) for need in needs]
    pins = [f"{bound[1]}=={bound[2]}" for bound in bounds if bound is not None]
    assert len(pins) == len(needs), f"every need has a lower bound and nothing else: {needs}"
    return [pin for pin in pins if not pin.startswith("torch==")]


if __name__ == "__main__":
    print("\n".join(lowest()))
