"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engram.errors import EngramError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path``; what is written there takes its place at the end.

    Folders are made as needed. After an error nothing is left, and what was there before still is.
    """
    part = path.with_name(f"{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(path)
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be written: {error}.") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
