"""The network of a version: by name, or with its code beside the weights; and how it grows."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import inspect
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from torch import Tensor, nn

from engram import plugins
from engram.errors import EngramError, shown
from engram.files import replacement
from engram.lab.networks import registry
from engram.lab.settings import Scalar
from engram.production.artefact import file_digest

Factory = Callable[..., nn.Module]
HUGGING_FACE = "hf:"
_CODE = "code"
_ENCODER = "encoder"
_loaded: dict[tuple[str, str], Factory] = {}  # by digest of the code, and name in it


@dataclass(frozen=True)
class Network:
    """What makes the network of a version: ``(shape, outputs)`` to an `nn.Module`.

    ``name`` is a registered one, ``FILE.py:name`` whose file and whatever it imports from beside
    it lie in the version, or ``hf:DIR`` for a text encoder whose configuration does. ``files``
    has the SHA-256 of each.
    """

    name: str
    arguments: Mapping[str, Scalar] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name is {shown(self.name)}")
        for name in self.files:
            parts = PurePosixPath(name).parts
            inside = parts[0] in (_CODE, _ENCODER) and len(parts) > 1 and ".." not in parts
            if not inside or "\\" in name or PureWindowsPath(name).drive:
                raise EngramError(f"{shown(name)} is no file of a network.")

    @property
    def has_code(self) -> bool:
        """Whether it is made by code that is not ours, which runs only where that is trusted.

        A name with a colon is one in a file or in a module; whatever has none is registered.
        """
        return ":" in self.name and not self.reads_text

    @property
    def reads_text(self) -> bool:
        """Whether it is a text encoder."""
        return self.name.startswith(HUGGING_FACE)

    def build(
        self, folder: Path, shape: tuple[int, ...], outputs: int, *, trust_code: bool
    ) -> nn.Module:
        """Return the network with weights of its own drawing, from the files in a version."""
        self.check_files(folder)
        if self.reads_text:
            from engram.production.texts import build_classifier

            return build_classifier(folder / _ENCODER, outputs)
        if not self.has_code:
            return registry.network_source(self.name, dict(self.arguments)).build(shape, outputs)
        if not trust_code:
            code = str(folder / _CODE) if self.files else self.name
            raise EngramError(
                f"The network is made by the code in {code!r}, which is run only where you say "
                "that you trust it: --trust-code, or trust_code=True."
            )
        if not self.files:  # a module that is installed
            return registry.network_source(self.name, dict(self.arguments)).build(shape, outputs)
        factory = self._factory(folder / _CODE)
        try:
            module = factory(shape, outputs, **self.arguments)
        except Exception as error:  # it is somebody else's
            raise EngramError(f"The network {self.name!r} cannot be made: {error!r}.") from error
        if not isinstance(module, nn.Module):
            raise EngramError(f"{self.name} must make an nn.Module, not {shown(module)}.")
        return module

    def check_files(self, folder: Path) -> None:
        """Refuse files in a version that are not those that it was made with."""
        for name, digest in self.files.items():
            if file_digest(folder / name) != digest:
                raise EngramError(
                    f"{str(folder / name)!r} was changed since the version was made: the network "
                    "is not built from it."
                )

    def tokeniser(self, folder: Path) -> Callable[..., Tensor] | None:
        """Return what makes tokens of texts, for a text encoder."""
        if not self.reads_text:
            return None
        from engram.production.texts import tokeniser

        return tokeniser(folder / _ENCODER)

    def copy_files(self, source: Path, target: Path) -> None:
        """Copy its files from one version's folder to another's."""
        for name in self.files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(source / name, target / name)

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return dataclasses.asdict(self)

    def _factory(self, folder: Path) -> Factory:
        """Import the code under a name of its own, so that it meets no other version's."""
        file, _, attribute = self.name.rpartition(":")
        digest = hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()
        if (digest, attribute) in _loaded:
            return _loaded[digest, attribute]
        before, path = dict(sys.modules), list(sys.path)
        name = f"engram_network_{digest[:16]}"
        spec = importlib.util.spec_from_file_location(name, folder / file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        local = [each.partition("/")[2] for each in self.files if each != f"{_CODE}/{file}"]
        tops = {Path(each).parts[0].removesuffix(".py") for each in local}
        for each in [each for each in sys.modules if each.partition(".")[0] in tops]:
            del sys.modules[each]
        bytecode = sys.dont_write_bytecode
        try:
            sys.path.insert(0, str(folder))
            sys.dont_write_bytecode = True
            sys.modules[name] = module
            spec.loader.exec_module(module)
            factory: Factory = getattr(module, attribute)
        except Exception as error:  # it is somebody else's
            raise EngramError(f"The network's code cannot be run: {error!r}.") from error
        finally:
            sys.dont_write_bytecode = bytecode
            sys.path[:] = path
            for each in [each for each in sys.modules if each.partition(".")[0] in tops]:
                del sys.modules[each]
            sys.modules.update({each: before[each] for each in before if each not in sys.modules})
        _loaded[digest, attribute] = factory
        return factory


def take_network(
    given: str | Factory, arguments: Mapping[str, Scalar] | None, folder: Path, trust_code: bool
) -> Network:
    """Return a network that a user gave, with copies of its files in a version's folder."""
    if isinstance(given, str) and given.startswith(HUGGING_FACE):
        from engram.production.texts import copy_encoder

        files = copy_encoder(Path(given.removeprefix(HUGGING_FACE)).expanduser(), folder / _ENCODER)
        return Network(given, dict(arguments or {}), _digests(folder, files))
    if not isinstance(given, str):
        given, trust_code = _place_of(given), True
    file, colon, attribute = given.rpartition(":")
    if not (colon and file.endswith(".py")):
        if colon and not trust_code:
            raise EngramError(
                f"The network is made by the module {file!r}, whose code is run only where you say "
                "that you trust it: --trust-code, or trust_code=True."
            )
        source = registry.network_source(given, dict(arguments or {}))
        return Network(source.name, dict(source.arguments))
    path = Path(file).expanduser()
    if not path.is_file():
        raise EngramError(f"There is no file {file!r} for the network {given!r}.")
    if not trust_code:
        raise EngramError(
            f"The network is made by {file!r}, whose code is run only where you say that you trust "
            "it: --trust-code, or trust_code=True."
        )
    files = [_copy(path.absolute(), folder / _CODE / path.name)]
    for name, place in plugins.local_modules(path.absolute()).items():
        target = folder / _CODE / Path(*name.split("."))
        is_package = place.name == "__init__.py"
        files.append(_copy(place, target / place.name if is_package else target.with_suffix(".py")))
    typed = dict(registry.network_source(given, dict(arguments or {})).arguments)
    return Network(f"{path.name}:{attribute}", typed, _digests(folder, files))


def _place_of(factory: Factory) -> str:
    name = getattr(factory, "__qualname__", "")
    try:
        file = inspect.getsourcefile(factory)
    except TypeError:
        file = None
    if file is None or not name.isidentifier():
        raise EngramError(
            f"network must be a registered name, FILE.py:name, or a class or function at the top "
            f"level of a file, not {shown(factory)}: a version keeps the code that makes it."
        )
    return f"{file}:{name}"


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacement(target, 0o600) as part:
        shutil.copyfile(source, part)
    return target


def _digests(folder: Path, files: list[Path]) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in files}


@torch.no_grad()
def grow(old: Mapping[str, Tensor], network: nn.Module) -> None:
    """Let a new network begin as an old one that had fewer inputs or outputs.

    What has the same shape is copied. Where there are more outputs, the first are the old ones'
    and the new ones are as they were drawn; weights of new inputs are 0, so that they change
    nothing before they are learned.
    """
    own = network.state_dict()
    if own.keys() != old.keys():
        raise EngramError(
            "The network has other parameters with more outputs or inputs, so that the learned "
            "ones cannot be taken over."
        )
    for name, new in own.items():
        held = old[name].to(new.device)
        if held.shape == new.shape:
            new.copy_(held)
            continue
        fits = held.dim() == new.dim() and held.dim() > 0
        if not fits or any(a > b for a, b in zip(held.shape, new.shape, strict=True)):
            raise EngramError(
                f"{name} has the shape {list(new.shape)} in the new network and {list(held.shape)} "
                "in the learned one."
            )
        block = tuple(slice(size) for size in held.shape)
        rows = new[: held.shape[0]]
        rows.zero_()  # what old outputs make of new inputs
        new[block] = held
