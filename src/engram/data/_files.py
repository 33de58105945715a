"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from engram.errors import EngramError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that takes the place of ``path`` at the end, on the disk for good.

    Any number of processes may write the same file: the last one's stays. After an error nothing
    is left, and what was there before still is.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise EngramError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
