"""Third parties' rules, policies, methods, benchmarks and networks: found, loaded, identified.

A plugin is a Python module that registers what it has. It is found by an entry point of an
installed distribution, or is a file (``--plugin FILE``, `use_files`). Each kind of thing has a
`Registry`, which knows ours and asks plugins for a name only where ours has none of it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.metadata import (
    Distribution,
    EntryPoint,
    distributions,
    entry_points,
    packages_distributions,
    version,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from engram.errors import EngramError, shown, unknown

KINDS = ("rules", "policies", "methods", "benchmarks", "networks")
"""What plugins may have; the entry points of each are in the group ``engram.KIND``."""

FILES = "ENGRAM_PLUGINS"
"""The variable of the environment that names plugin files, separated as paths are."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_OURS = Path(__file__).parent
REGISTRIES: dict[str, Registry[Any]] = {}
"""The registry of each kind, once what has it is imported."""
_loaded: dict[Path, ModuleType] = {}
_barred: list[bool] = []  # not empty while nothing is to be loaded
_loading: list[Origin] = []  # the plugin that is being loaded, and those that it loads

T = TypeVar("T")


@dataclass(frozen=True)
class Origin:
    """Where something comes from: in words, and as a part of what results are filed under."""

    words: str
    """A distribution and its version, the path of a file, or a module."""
    identity: str | None
    """A distribution and its version, or a digest of the source; None for what is ours.

    None also for what was typed into a session: there is no file to digest, and no worker finds it.
    """

    @property
    def ours(self) -> bool:
        """Whether it comes with Engram."""
        return self.words.partition(".")[0] == "engram"


class Listed(NamedTuple):
    """A name, where it comes from, and why it cannot be had, if it cannot."""

    name: str
    origin: str
    refused: str | None = None


class Registry(Generic[T]):
    """The things of one kind by their names: ours, and those of plugins once they are asked for.

    ``check`` returns what is to be kept under a name, or raises an EngramError.
    """

    def __init__(self, kind: str, noun: str, check: Callable[[str, object], T]) -> None:
        self.kind, self.noun = kind, noun
        self._check = check
        self._held: dict[str, tuple[T, Origin]] = {}
        REGISTRIES[kind] = self

    def add(self, name: str, value: object, *, module: str) -> T:
        """Make something known by a name; one that somebody else has given is refused.

        ``module`` is the one that it is defined in. The same module may give a name again.
        """
        checked = self._check(name, value)
        origin = _origin_while_loading() if _loading else origin_of(module)
        if not origin.ours and not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise EngramError(
                f"name must be of small letters, digits and single hyphens, not {shown(name)}."
            )
        if name in self._held and self._held[name][1].words != origin.words:
            owner = self._held[name][1].words
            raise EngramError(f"name must not be {name!r}, which {owner} has registered.")
        self._held[name] = checked, origin
        return checked

    def ours(self) -> list[str]:
        """Return the names of what comes with Engram, in order."""
        return [name for name, (_, origin) in self._held.items() if origin.ours]

    def names(self) -> list[str]:
        """Return all names, those of plugins included; no distribution is imported for that."""
        load_files()
        return list(dict.fromkeys([*self._held, *(each.name for each in self._offered())]))

    def get(self, name: object) -> T:
        """Return what has this name, or raise an error that lists the valid ones."""
        found = self.find(name)
        if found is None:
            raise unknown(self.noun, name, self.names())
        return found

    def find(self, name: object) -> T | None:
        """Return what has this name, if anything has: a plugin is loaded that says it has."""
        if not isinstance(name, str):
            return None
        if name not in self._held:
            load_files()
        if name not in self._held:
            self._load(name)
        return self._held[name][0] if name in self._held else None

    def origin(self, name: str) -> Origin:
        """Return where something that was found comes from."""
        return self._held[name][1]

    def identity(self, name: str) -> str | None:
        """Return what a name that was found adds to a result's identity; None of ours."""
        return self._held[name][1].identity if name in self._held else None

    def listed(self) -> list[Listed]:
        """Return all names with their origins; what is installed is listed without being loaded."""
        load_files()
        held = [Listed(name, origin.words) for name, (_, origin) in self._held.items()]
        known = set(self._held)
        offers = self._offered()
        for offer in offers:
            words, refused = _words(offer), None
            others = [_words(o) for o in offers if o.name == offer.name and o is not offer]
            if offer.name in known:
                owner = self._held[offer.name][1].words
                if owner == words:
                    continue
                refused = f"the name is that of {owner}"
            elif others:
                refused = f"{' and '.join(others)} has the name too"
            held.append(Listed(offer.name, words, refused))
        return held

    def _offered(self) -> list[EntryPoint]:
        """Return what installed distributions say that they have, each once."""
        found = entry_points(group=f"engram.{self.kind}")
        return list({(_words(each), each.name): each for each in found}.values())

    def _load(self, name: str) -> None:
        """Load the distribution's module that offers a name, if one does."""
        if _barred:
            return
        offers = [each for each in self._offered() if each.name == name]
        if len(offers) > 1:
            both = " and ".join(_words(each) for each in offers)
            raise EngramError(
                f"The {self.noun} {name!r} is offered by {both}: one of them must be uninstalled."
            )
        for offer in offers:
            origin = Origin(_words(offer), _identity(offer))
            with _naming(origin, f"plugin {origin.words}"):
                value = offer.load()
                if not isinstance(value, ModuleType):
                    self.add(name, value, module=offer.module)
                elif name not in self._held:
                    raise EngramError(
                        f"{offer.module} registers no {self.noun} {name!r}, which its entry point "
                        "promises."
                    )

    def forget(self, origin: Origin) -> None:
        """Forget what a plugin has registered that then raised."""
        self._held = {name: each for name, each in self._held.items() if each[1] != origin}


def use_files(files: Sequence[Path | str]) -> None:
    """Load plugins from files, and let worker processes find what is in them.

    A file is a module of the name that it has without ``.py``, and may import others beside it.
    """
    paths = [_path(file) for file in files]
    for path in paths:
        load_file(path)
    if paths:
        known = dict.fromkeys([*plugin_files(), *paths])
        os.environ[FILES] = os.pathsep.join(map(str, known))


def plugin_files() -> list[Path]:
    """Return the files that the environment names, in order."""
    return [Path(each) for each in os.environ.get(FILES, "").split(os.pathsep) if each]


@contextmanager
def loading_nothing() -> Iterator[None]:
    """Let nothing be loaded inside: what is not loaded already is not found."""
    _barred.append(True)
    try:
        yield
    finally:
        _barred.pop()


def load_files() -> None:
    """Load the plugin files that the environment names, unless they are loaded."""
    if _barred:
        return
    for path in plugin_files():
        load_file(_path(path))


def load_file(path: Path, *, registers: bool = True, noun: str = "plugin") -> ModuleType:
    """Return the module of a file, which is executed once.

    One that ``registers`` must register something. What it raises is told in one sentence, which
    names the ``noun`` and the file, and leaves nothing behind.
    """
    if path in _loaded:
        return _loaded[path]
    name, words = path.stem, str(path)
    with _naming(Origin(words, None), f"{noun} {words}"):
        if not name.isidentifier():
            raise EngramError("the file's name must be that of a Python module")
        if (other := _other_module(name, path)) is not None:
            raise EngramError(f"a module of the name {name!r} is there already, in {other}")
        origin = Origin(words, f"sha256:{source_digest(path)}")
    before = sys.path.copy()
    sys.path.append(str(path.parent))  # behind all others: it hides no module that is installed
    loader = _FreshLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _naming(origin, f"{noun} {words}"):
            loader.exec_module(module)
            if registers and not any(
                origin == own for each in REGISTRIES.values() for _, own in each._held.values()
            ):
                raise EngramError("it registers nothing; see docs/extending")
    except BaseException:
        del sys.modules[name]
        sys.path[:] = before
        raise
    _loaded[path] = module
    return module


class _FreshLoader(importlib.machinery.SourceFileLoader):
    """Compiles a file as it is now: bytecode is looked up by the second that it was made in."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return self.source_to_code(self.get_data(self.path), self.path)


def origin_of(module: str) -> Origin:
    """Return where what a module defines comes from.

    What was loaded as a plugin file is that file's.
    """
    if module.partition(".")[0] == "engram":
        return Origin(module, None)
    for path, loaded in _loaded.items():
        if loaded.__name__ == module:
            return Origin(str(path), f"sha256:{source_digest(path)}")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_file():
        return Origin(module, None)
    path = Path(file).absolute()
    if (owner := _distribution_of(path)) is not None:
        return Origin(f"{owner.name} {owner.version}", _dist_identity(owner, path))
    return Origin(module, f"sha256:{source_digest(path)}")


def _origin_while_loading() -> Origin:
    """Return the plugin that is being loaded or, where it imports another one, that one."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == "engram":
        frame = frame.f_back
    caller = frame.f_globals["__name__"]
    file = getattr(sys.modules.get(caller), "__file__", None)
    owner = None if file is None else _distribution_of(Path(file).absolute())
    if owner is None or f"{owner.name} {owner.version}" == _loading[-1].words:
        return _loading[-1]
    return origin_of(caller)


def source_digest(path: Path) -> str:
    """Return the SHA-256 of a file and of the modules that it imports and that are not installed.

    Of a file alone it is what ``sha256sum`` prints. Imports are those that are written in the
    sources, wherever they stand, and those of what they import.
    """
    found = local_modules(path)
    own = hashlib.sha256(path.read_bytes()).hexdigest()
    if not found:
        return own
    digest = hashlib.sha256(own.encode())
    for name, file in sorted(found.items()):
        digest.update(f"\n{name} {hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
    return digest.hexdigest()


def local_modules(path: Path) -> dict[str, Path]:
    """Return the files of the modules that a file imports and that are not installed, by name."""
    found: dict[str, Path] = {}
    beside = str(path.parent)
    package, root = _package(path)
    left = [(path, package)]
    searched = [*sys.path, str(root), beside]
    while left:
        file, inside = left.pop()
        for name in _imported(file, inside):
            for each, place in _resolved(name, searched):
                if each not in found and place != path and not _installed(place):
                    found[each] = place
                    is_package = place.name == "__init__.py"
                    left.append((place, each if is_package else each.rpartition(".")[0]))
    return found


def requirements(path: Path) -> dict[str, str]:
    """Return the distributions that a file, or a module of its own that it imports, imports from.

    Each is named with its version. Engram and torch are none of them.
    """
    known: Mapping[str, Sequence[str]] | None = None
    found: dict[str, str] = {}
    package, _ = _package(path)
    sources = {package: path, **local_modules(path)}
    local = {name.partition(".")[0] for name in local_modules(path)}
    tops = {
        name.partition(".")[0]
        for inside, file in sources.items()
        for name in _imported(
            file, inside if file.name == "__init__.py" else inside.rpartition(".")[0]
        )
    }
    for top in sorted(tops - local - sys.stdlib_module_names - {"engram", "torch"}):
        known = packages_distributions() if known is None else known
        for each in known.get(top, ()):
            found[each] = version(each)
    return found


def _package(path: Path) -> tuple[str, Path]:
    """Return the package that a file is in, and the folder that this is imported from."""
    names, folder = list[str](), path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), folder


def _imported(path: Path, package: str) -> Iterator[str]:
    """Yield the names of modules, or of what may be one, that a source imports."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # whoever executes it says so
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".") if package else []
                above = parts[: len(parts) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield from [base] if base else []
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _resolved(name: str, searched: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the files of a module and of the packages that it is in; nothing is imported."""
    places: Sequence[str] | None = searched
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names or parts[0] in ("engram", "torch", "numpy", "*"):
        return
    for count in range(1, len(parts) + 1):
        each = ".".join(parts[:count])
        spec = importlib.machinery.PathFinder.find_spec(each, places)
        if spec is None and count == 1:  # one installed to be edited may have a finder
            others = (each for each in sys.meta_path if each is not importlib.machinery.PathFinder)
            spec = next(filter(None, (other.find_spec(parts[0], None) for other in others)), None)
        if spec is None:
            return
        if spec.origin is not None and spec.has_location:
            place = Path(spec.origin)
            if place.suffix == ".py":
                yield each, place.absolute()
        places = spec.submodule_search_locations
        if places is None:
            return


def _installed(path: Path) -> bool:
    """Whether a file is Python's, a distribution's or ours."""
    if path.is_relative_to(_OURS) or any(path.is_relative_to(each) for each in _library_folders()):
        return True
    return _distribution_of(path) is not None


@cache
def _library_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    names = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(map(Path, [*names, *site.getsitepackages(), site.getusersitepackages()]))


def _distribution_of(path: Path) -> Distribution | None:
    """Return the distribution that a file was installed by, if it lies beside its metadata."""
    for folder in [Path(each).absolute() for each in sys.path if each]:
        if path.is_relative_to(folder):
            start = f"{path.relative_to(folder).as_posix()},"
            for each in distributions(path=[str(folder)]):
                lines = (each.read_text("RECORD") or "").splitlines()
                if any(line.startswith(start) for line in lines):
                    return each
    return None


def _words(offer: EntryPoint) -> str:
    dist = offer.dist
    return "an unknown distribution" if dist is None else f"{dist.name} {dist.version}"


def _identity(offer: EntryPoint) -> str:
    """Return what an entry point's distribution adds to a result's identity."""
    assert offer.dist is not None
    found = [place for _, place in _resolved(offer.module, sys.path)]
    return _dist_identity(offer.dist, found[-1] if found else None)


def _dist_identity(dist: Distribution, path: Path | None) -> str:
    """Return a distribution and its version; of one that can be edited, its source's digest too."""
    where = json.loads(dist.read_text("direct_url.json") or "{}")
    named = f"{dist.name} {dist.version}"
    if where.get("dir_info", {}).get("editable") and path is not None:
        return f"{named} sha256:{source_digest(path)}"
    return named


@contextmanager
def _naming(origin: Origin, name: str) -> Iterator[None]:
    """Let what is registered meanwhile come from there, and what is raised say where it was."""
    _loading.append(origin)
    try:
        with redirect_stdout(sys.stderr):  # what it prints is nothing of a command's output
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        for registry in REGISTRIES.values():
            registry.forget(origin)
        reason = (error.msg if isinstance(error, SyntaxError) else str(error)).rstrip(".")
        if not isinstance(error, EngramError):
            reason = f"{type(error).__name__}{_line(error, origin.words)}: {reason}".rstrip(": ")
        raise EngramError(f"The {name} cannot be used: {reason}.") from error
    finally:
        _loading.pop()


def fault(error: BaseException) -> str | None:
    """Return the sentence that names the plugin in which something was raised, if it was in one.

    What a plugin calls is part of it: the newest line of a plugin's own is the one that is told.
    """
    known = {origin.words for each in REGISTRIES.values() for _, origin in each._held.values()}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        words = _plugin_of(Path(frame.filename), known)
        if words is not None:
            reason = f"{type(error).__name__} in line {frame.lineno}: {error}".rstrip(": .")
            return f"The plugin {words} failed: {reason}."
    return None


def _plugin_of(path: Path, known: Collection[str]) -> str | None:
    """Return the plugin that a source belongs to, in words: one of the ``known``, or a file."""
    if path in _loaded:
        return str(path)
    if path.is_relative_to(_OURS) or (owner := _distribution_of(path)) is None:
        return None
    words = f"{owner.name} {owner.version}"
    return f"{words}, {path.name}," if words in known else None


def _line(error: BaseException, file: str) -> str:
    """Return the line of a plugin that raised, in words: of its file, or the last one of all."""
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}"
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if each.filename[:1] != "<"
    ]
    own = [each for each in frames if each.filename == file]
    if own:
        return f" in line {own[-1].lineno}"
    return f" in line {frames[-1].lineno} of {Path(frames[-1].filename).name}"


def _other_module(name: str, path: Path) -> str | None:
    """Return where a module of this name is that is not this file."""
    if name in sys.stdlib_module_names:
        return "Python's library"
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
        return None if file is not None and Path(file).absolute() == path else str(file)
    spec = importlib.machinery.PathFinder.find_spec(name, sys.path)
    if spec is None or spec.origin is None or Path(spec.origin).absolute() == path:
        return None
    return spec.origin


def _path(file: Path | str) -> Path:
    try:
        path = Path(file).expanduser().absolute()
        found = path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name that is too long; nobody's home
        found = False
    if not found or path.suffix != ".py" or os.pathsep in str(path):
        raise EngramError(f"plugin must be a Python file that exists, not {str(file)!r}.")
    return path
