"""Files of measured speed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engram.files import whole_file
from engram.runs import stamp

Rows = Sequence[Mapping[str, Any]]


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
