"""A memory on disk: one safetensors file, written whole or not at all; nothing is unpickled.

Also what a state is made of: a ledger's are arrays, those of files and of torch tensors, and what
has no fixed shape is JSON in an array of bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError, shown
from engram.files import replacement
from engram.memory.columns import from_file, to_file

FORMAT = "engram-memory"
VERSION = 3
"""The newest version; a file is of the least version that it needs.

1 has no list of dtypes, and 2 no measures of examples (weights, times), no greatest age, no
subjects that are blocked, no columns of different lengths and no budget in examples beside one in
bytes.
"""

State: TypeAlias = dict[str, Any]


def write(path: str | os.PathLike[str], state: Mapping[str, Any], version: int = 1) -> None:
    """Write a nested state of tensors and JSON values; a failure leaves an older file as it was.

    ``version`` is the least that the state needs, without what files add to it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    document, parts = _split(state, "")
    tensors, dtypes = {}, {}
    for name, tensor in parts.items():
        plain, dtype = to_file(tensor.cpu().contiguous())
        tensors[name] = plain.contiguous()
        if dtype is not None:
            dtypes[name] = dtype
    metadata = {"format": FORMAT, "version": str(version), "document": json.dumps(document)}
    if dtypes:
        metadata |= {"version": str(max(version, 2)), "dtypes": json.dumps(dtypes)}
    metadata["sha256"] = _digest(metadata, tensors)
    target = _place(path)
    try:
        with replacement(target, 0o600) as part:  # it holds examples: they are its owner's alone
            save_file(tensors, part, metadata)
    except (OSError, ValueError, SafetensorError) as error:  # a value: no name for a file
        raise EngramError(f"The memory could not be saved as {target}: {error}.") from error


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state that `write` wrote, or refuse what is not whole and its own."""
    from safetensors import SafetensorError, safe_open

    place = _place(path)
    try:
        with safe_open(place, framework="pt") as file:
            metadata = file.metadata() or {}
            _check_version(path, metadata)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except EngramError:
        raise
    except (OSError, ValueError) as error:  # a value: no name for a file
        raise EngramError(f"The memory {path} cannot be read: {error}.") from error
    except SafetensorError as error:
        raise EngramError(f"{path} is not a memory file, or is damaged: {error}.") from error
    if metadata.get("sha256") != _digest(metadata, tensors):
        raise EngramError(f"The memory {path} is damaged: its checksum does not match.")
    for name, dtype in json.loads(metadata.get("dtypes", "{}")).items():
        tensors[name] = from_file(tensors[name], dtype)
    return _join(json.loads(metadata["document"]), tensors)


def _place(path: str | os.PathLike[str]) -> Path:
    try:
        place = Path(path)
        str(place).encode()  # safetensors would write a file of another name, but not read it
    except (TypeError, UnicodeEncodeError):
        raise EngramError(f"path must be a file's, in UTF-8, not {shown(path)}.") from None
    return place


def _check_version(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise EngramError(f"{path} is not a memory file.")
    version = metadata.get("version", "")
    if not version.isdecimal() or int(version) < 1:
        raise EngramError(f"The memory {path} is damaged: its format version is {version!r}.")
    if int(version) > VERSION:
        raise EngramError(
            f"The memory {path} has format version {version}, and this Engram reads versions up to "
            f"{VERSION}; install a newer one."
        )


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of everything but itself: safetensors has no checksum of its own."""
    digest = hashlib.sha256()
    signed = {name: text for name, text in metadata.items() if name != "sha256"}
    digest.update(json.dumps(signed, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():  # nothing cannot be viewed as bytes
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _split(state: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Part a nested state into its JSON values and its tensors by path."""
    document: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name, value in state.items():
        if isinstance(value, Tensor):
            tensors[prefix + name] = value
        elif isinstance(value, Mapping):
            document[name], inner = _split(value, f"{prefix}{name}/")
            tensors |= inner
        else:
            document[name] = value
    return document, tensors


def _join(document: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Put the tensors back where `_split` found them."""
    for path, tensor in tensors.items():
        *folders, name = path.split("/")
        place = document
        for folder in folders:
            place = place[folder]
        place[name] = tensor
    return document


def to_tensors(state: State) -> State:
    """Return the state with a tensor for every array."""
    return _map(
        state, lambda leaf: torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
    )


def to_arrays(state: State) -> State:
    """Return the state with an array for every tensor."""
    return _map(state, lambda leaf: leaf.cpu().numpy() if isinstance(leaf, Tensor) else leaf)


def _map(state: State, convert: Callable[[Any], Any]) -> State:
    return {
        name: _map(value, convert) if isinstance(value, dict) else convert(value)
        for name, value in state.items()
    }


class UntrustedInput:
    """Says in one sentence what a state that is no memory's, or a damaged one, makes go wrong.

    It is no generator: one that Ctrl-C finds suspended would be closed by whoever collects it.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, EngramError):
            message = f"{type(error).__name__}: {error}"  # whoever made it, it may raise anything
            raise EngramError(f"The state is not a memory's, or is damaged ({message}).") from error


def refuse_unless(name: str, right: bool) -> None:
    """Refuse a state of which a part is not right."""
    if not right:
        raise EngramError(f"The state's {name} are not as a memory writes them.")
