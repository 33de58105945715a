"""Data and sources that travel with the work: packed on the driver, unpacked once on a machine."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from engram import plugins
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.lab.protocol import Spec

SMALL = 64 * 2**20  # bytes: what is not larger travels without being asked to
_OWN = ("folder", "table")
_OFFICIAL = {
    "split-cifar": "cifar-100",
    "class-incremental-cifar": "cifar-100",
    "split-cub": "cub-200-2011",
    "split-awa": "awa2",
}


@dataclass(frozen=True)
class Parcel:
    """The data of a benchmark as one archive: inside of it, in a file, or in Ray's object store."""

    benchmark: str
    digest: str  # SHA-256 of the archive
    inside: str  # the name of what was packed, a file or a folder
    source: Any = None  # bytes; the path of a file; a function that returns bytes; None: unpacked

    def located(self, spec: Spec, place: Path) -> Spec:
        """Return a spec that finds its data in the folder where this was unpacked."""
        kind, colon, _ = spec.benchmark.partition(":")
        if colon and kind in _OWN:
            return replace(spec, benchmark=f"{kind}:{place / self.inside}")
        os.environ["ENGRAM_DATA"] = str(place)
        return replace(spec)

    def content(self) -> bytes:
        """Return the archive, held to its digest."""
        if isinstance(self.source, bytes):
            content = self.source
        elif isinstance(self.source, Path):
            content = self.source.read_bytes()
        elif self.source is not None:
            content = self.source()
        else:
            raise EngramError(f"the data of {self.benchmark} did not arrive.")
        if hashlib.sha256(content).hexdigest() != self.digest:
            raise EngramError(f"the data of {self.benchmark} was changed on its way.")
        return content


def packed(specs: Iterable[Spec], *, limit: float) -> list[Parcel]:
    """Return a parcel for each benchmark whose data takes at most so many bytes."""
    parcels: dict[str, Parcel] = {}
    for spec in specs:
        if spec.benchmark in parcels:
            continue
        place = data_of(spec.benchmark)
        if place is None or _size(place) > limit:
            continue
        content = _archive(place)
        digest = hashlib.sha256(content).hexdigest()
        parcels[spec.benchmark] = Parcel(spec.benchmark, digest, place.name, content)
    return list(parcels.values())


def data_of(benchmark: str) -> Path | None:
    """Return where a benchmark's data lies on this machine; None if the package has it."""
    from engram.lab.data.catalogue import located, source

    kind, colon, path = benchmark.partition(":")
    if colon and kind in _OWN:
        return Path(path).expanduser().resolve()
    return located(source(_OFFICIAL[benchmark]), None) if benchmark in _OFFICIAL else None


@dataclass(frozen=True)
class Sources:
    """Plugin files and networks of one's own, each with the modules that it imports.

    They are in the parcel of a digest, under names that say where each was.
    """

    digest: str
    plugins: tuple[str, ...]
    networks: tuple[tuple[str, str], ...]  # the path that a network was given by, and its name

    def put_in_place(self, place: Path) -> None:
        """Let this process find what was unpacked into a folder, before all else of these names.

        Modules that are installed are not in there; but the driver's own folder may be on the path.
        """
        os.environ[plugins.FILES] = os.pathsep.join(str(place / each) for each in self.plugins)
        names = [*self.plugins, *(name for _, name in self.networks)]
        folders = dict.fromkeys(str((place / name).parent) for name in names)
        sys.path[:] = [*folders, *(each for each in sys.path if each not in folders)]

    def located(self, spec: Spec, place: Path) -> Spec:
        """Return a spec whose network is found there."""
        source = spec.network
        if source is None:
            return replace(spec)
        path, _, attribute = source.name.rpartition(":")
        name = dict(self.networks).get(path)
        if name is None:
            return replace(spec)
        return replace(spec, network=replace(source, name=f"{place / name}:{attribute}"))


def packed_sources(specs: Iterable[Spec], *, trusted: bool) -> tuple[Sources, Parcel] | None:
    """Return what workers need to run plugins and networks of one's own, if there are any.

    They are refused unless somebody has said that workers are to run them.
    """
    networks = dict.fromkeys(
        path
        for spec in specs
        if (source := getattr(spec, "network", None)) is not None
        and (path := source.name.rpartition(":")[0]).endswith(".py")
    )
    files = plugins.plugin_files()
    if not files and not networks:
        return None
    if not trusted:
        first = [*map(str, files), *networks][0]
        raise EngramError(
            f"Workers are sent no source to run, such as {first!r}, unless you trust it to be run "
            "there: --trust-plugins."
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        names = [
            _add_source(archive, number, Path(path).expanduser().absolute())
            for number, path in enumerate([*files, *networks])
        ]
    content = buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    own = tuple(zip(networks, names[len(files) :], strict=True))
    sources = Sources(digest, tuple(names[: len(files)]), own)
    return sources, Parcel("plugins", digest, "", content)


def _add_source(archive: tarfile.TarFile, number: int, path: Path) -> str:
    """Add a file, and beside it the modules that it imports; return its name in the archive."""
    archive.add(path, f"{number}/{path.name}", filter=_plain)
    for module, file in sorted(plugins.local_modules(path).items()):
        name = module.replace(".", "/")
        ending = "/__init__.py" if file.name == "__init__.py" else ".py"
        archive.add(file, f"{number}/{name}{ending}", filter=_plain)
    return f"{number}/{path.name}"


def unpacked(parcel: Parcel) -> Path:
    """Return the folder that a parcel was unpacked into, once on this machine."""
    from engram.lab.data.images import cache_folder

    place = cache_folder() / "shipped" / parcel.digest[:32]
    if place.is_dir():
        return place
    part = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        part.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(parcel.content())) as archive:
            for entry in archive:
                _write_entry(archive, entry, part)
        with suppress(OSError):  # somebody else was faster
            part.rename(place)
    except (OSError, tarfile.TarError) as error:
        raise EngramError(f"the data of {parcel.benchmark} cannot be unpacked: {error}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def _write_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    """Write a file or a folder inside of this one; nothing else is in what we have packed."""
    path = PurePosixPath(entry.name)
    source = archive.extractfile(entry) if entry.isfile() else None
    if path.is_absolute() or ".." in path.parts or (source is None and not entry.isdir()):
        raise tarfile.TarError(f"{entry.name!r} is no plain file or folder in it")
    target = folder / path
    if source is None:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file)


def _archive(place: Path) -> bytes:
    """Return a tar of a file or a folder: the same bytes for the same content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
        archive.add(place, place.name, filter=_plain)
    return buffer.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _size(place: Path) -> int:
    if place.is_file():
        return place.stat().st_size
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
