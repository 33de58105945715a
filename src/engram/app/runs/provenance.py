"""What a result was made with: versions, commit, kernels. None of it is its identity."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import engram
from engram import __version__

_COMMIT = "ENGRAM_COMMIT"  # for a copy of a checkout without its history
_PATIENCE = 10.0  # seconds for git
_version = cache(version)  # of an installed package: reading that of torch takes its time


def made_with(*, gpu: bool = False) -> dict[str, str]:
    """Return the versions that this process computes with.

    ``commit`` is there where it can be known, with "+changes" if the source differs from it;
    ``kernels`` is there for a ``gpu``: Triton's version and a digest of the kernels' source.
    """
    made = {
        "engram": __version__,
        "python": platform.python_version(),
        "torch": _version("torch"),
    }
    if (commit := source_commit()) is not None:
        made["commit"] = commit
    if gpu:
        made["kernels"] = _kernels()
    return made


@cache
def source_commit() -> str | None:
    """Return the commit of the running source, or None where nothing tells it.

    It is $ENGRAM_COMMIT, else that of the checkout which this package lies in, else the one that
    the package was installed from.
    """
    if given := os.environ.get(_COMMIT, "").strip():
        return given if given.isprintable() else None
    package = Path(engram.__file__).parent
    if (package.parent.parent / ".git").exists():  # <checkout>/src/engram
        with suppress(OSError, subprocess.SubprocessError):
            commit = _git(package, "rev-parse", "HEAD")
            return f"{commit}+changes" if _git(package, "status", "--porcelain", ".") else commit
    with suppress(PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        origin = json.loads(distribution("engram-torch").read_text("direct_url.json") or "null")
        return str(origin["vcs_info"]["commit_id"])
    return None


@cache
def package_digest(folder: str = "") -> str:
    """Return the first digits of the SHA-256 of the package's source, or of one of its folders."""
    top = Path(engram.__file__).parent / folder
    digest = hashlib.sha256()
    for path in sorted(top.rglob("*.py")):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(top).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()[:12]


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE)
    return done.stdout.strip()


def _kernels() -> str:
    try:
        return f"triton {version('triton')}, {package_digest('kernels')}"
    except PackageNotFoundError:
        return "none"
