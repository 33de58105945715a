"""Where data lies and where decoded data is kept."""

from __future__ import annotations

import os
from pathlib import Path

from engram.errors import EngramError


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/engram``, or ``~/.cache/engram``."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if Path(given).is_absolute():  # the standard says to ignore a relative one
        return Path(given) / "engram"
    try:
        return Path.home() / ".cache" / "engram"
    except RuntimeError:
        raise EngramError("There is no home folder to cache in: set XDG_CACHE_HOME.") from None


def data_folder(folder: Path | None = None) -> Path:
    """Return the folder that is given, else ``$ENGRAM_DATA``, else one in the cache."""
    given = os.environ.get("ENGRAM_DATA")
    place = folder if folder is not None else Path(given) if given else None
    try:
        return cache_folder() / "data" if place is None else place.expanduser()
    except RuntimeError:
        raise EngramError(f"There is no home folder as in {str(place)!r}.") from None
