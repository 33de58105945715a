"""Files of measured speed, and the tables that pages make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engram.errors import EngramError
from engram.files import whole_file
from engram.report._markdown import escape
from engram.report._sheets import sheet_markdown
from engram.runs import stamp

Rows = Sequence[Mapping[str, Any]]
_PATTERN = "performance-*.json"
NOT_MEASURED = "Not measured yet."
_NAMES = {"engram": "Engram", "torch": "PyTorch", "python": "Python", "avalanche-lib": "Avalanche"}


class Performance(NamedTuple):
    """What was measured in one go: tables by their names, on which device, when and with what."""

    device: str
    created: str
    versions: Mapping[str, str]
    command: str
    tables: Mapping[str, Rows]


def save_performance(
    path: Path,
    tables: Mapping[str, Rows],
    *,
    device: str,
    command: str,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Write tables that were measured just now; ``versions`` are those of others' packages."""
    made = stamp(command)
    made["versions"] |= versions or {}
    content = {"device": device, **made, "tables": tables}
    with whole_file(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def performance_block(folder: Path, name: str) -> str:
    """Return one of ``SHEETS`` as it was last measured on each device, with its receipt.

    It is found in the files of a folder, of which some may hold other tables.
    """
    found = [_read(path) for path in sorted(folder.glob(_PATTERN))]
    having = sorted((each for each in found if name in each.tables), key=lambda each: each.created)
    newest = {each.device: each for each in having}
    blocks = [
        f"{_receipt(each)}\n\n{sheet_markdown(name, each.tables[name])}" for each in newest.values()
    ]
    return "\n\n".join(blocks) if blocks else NOT_MEASURED


def _read(path: Path) -> Performance:
    try:
        return Performance(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise EngramError(f"{str(path)!r} holds no measured speed: {error}.") from None


def _receipt(measured: Performance) -> str:
    versions = [f"{_NAMES.get(name, name)} {each}" for name, each in measured.versions.items()]
    device = measured.device[:1].upper() + measured.device[1:]
    told = f"{device}, {measured.created[:10]}, {', '.join(versions)}"
    return f"{escape(told)}; `{measured.command}`:"
