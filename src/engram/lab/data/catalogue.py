"""The public data sets and weights by name: where they come from, where they lie, loading them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from engram.errors import EngramError, unknown
from engram.lab.data.archives import unpack
from engram.lab.data.awa import awa_layout
from engram.lab.data.cifar import binary_layout, python_layout
from engram.lab.data.cub import cub_layout
from engram.lab.data.images import ImageSet, Layout, cache_folder, cached


@dataclasses.dataclass(frozen=True)
class Source:
    """A public data set or checkpoint, and where it is on this machine."""

    name: str
    title: str
    licence: str
    bytes: int  # of the download, or about; the checksum decides whether it is whole
    unpacked: int  # bytes more on the disk once it is unpacked
    urls: tuple[str, ...]  # the official ones, tried in order
    checksum: str  # of the download, as "md5:…" or "sha256:…"
    folder: str = ""  # the archive's one folder; empty where the download is used as it is
    present: Path | None = None

    @property
    def file(self) -> str:
        """The name of the file that is downloaded."""
        return self.urls[0].rpartition("/")[2]


CATALOGUE = {
    source.name: source
    for source in (
        Source(
            name="cifar-100",
            title="CIFAR-100 (Krizhevsky, 2009)",
            licence="none stated; cite the technical report",
            bytes=168_513_733,
            unpacked=184_450_000,
            urls=(
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "https://cave.cs.toronto.edu/kriz/cifar-100-binary.tar.gz",
            ),
            checksum="md5:03b5dce01913d631647c71ecec9e9cb8",
            folder="cifar-100-binary",
        ),
        Source(
            name="cub-200-2011",
            title="Caltech-UCSD Birds-200-2011 (Wah et al., 2011)",
            licence="non-commercial research and education only",
            bytes=1_150_585_339,
            unpacked=1_300_000_000,
            urls=(
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                "https://data.caltech.edu/api/records/65de6-vp158/files/CUB_200_2011.tgz/content",
            ),
            checksum="md5:97eceeb196236b17998738112f37df78",
            folder="CUB_200_2011",
        ),
        Source(
            name="awa2",
            title="Animals with Attributes 2 (Xian et al., 2018)",
            licence="free to use and share, by image (licenses.txt in the archive)",
            bytes=13_000_000_000,  # its page gives no more digits
            unpacked=13_000_000_000,
            urls=(
                "https://cvml.ista.ac.at/AwA2/AwA2-data.zip",
                "https://cvml.ist.ac.at/AwA2/AwA2-data.zip",
            ),
            checksum="md5:eaa27cf799d5cf55af372356d7281b5e",
            folder="Animals_with_Attributes2",
        ),
        Source(
            name="resnet18-imagenet",
            title="ResNet-18 trained on ImageNet, torchvision's weights",
            licence="BSD-3-Clause (torchvision); ImageNet's terms for what it learnt from",
            bytes=46_830_571,
            unpacked=0,
            urls=("https://download.pytorch.org/models/resnet18-f37072fd.pth",),
            checksum="sha256:f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
        ),
    )
}


class _Form(NamedTuple):
    """One official form of a data set."""

    folder: str
    archive: str  # the file that holds that folder
    mark: str  # what lies in the folder, if it is the right one
    layout: Callable[[Path], Layout]


_FORMS = {
    "cifar-100": (
        _Form("cifar-100-binary", "cifar-100-binary.tar.gz", "train.bin", binary_layout),
        _Form("cifar-100-python", "cifar-100-python.tar.gz", "train", python_layout),
    ),
    "cub-200-2011": (_Form("CUB_200_2011", "CUB_200_2011.tgz", "images.txt", cub_layout),),
    "awa2": (_Form("Animals_with_Attributes2", "AwA2-data.zip", "classes.txt", awa_layout),),
}


def load(name: str, folder: Path | None = None) -> ImageSet:
    """Return a data set from its official folder or archive, images mapped from the cache.

    ``folder`` holds it, for example as ``cifar-100-binary/train.bin``; without one, the folder is
    ``$ENGRAM_DATA``, or else where `fetch` puts what it downloads. The folder is only read: what
    is decoded goes to the cache, once.
    """
    if name not in _FORMS:
        raise unknown("data set", name, _FORMS)
    place = located(source(name), folder)
    return cached(_layout(source(name), place))


def checksum(name: str, folder: Path | None = None) -> str:
    """Return the SHA-256 of a data set's decoded content: shapes, labels and pixels."""
    return load(name, folder).checksum


def sources(folder: Path | None = None) -> list[Source]:
    """Return all that can be had, and where each lies in the folder, if it does."""
    where = data_folder(folder)
    return [
        dataclasses.replace(known, present=locate(known, where)) for known in CATALOGUE.values()
    ]


def source(name: str) -> Source:
    """Return the source of that name, or an error that lists the valid ones."""
    if name not in CATALOGUE:
        raise unknown("data set", name, CATALOGUE)
    return CATALOGUE[name]


def located(wanted: Source, folder: Path | None) -> Path:
    """Return where a source lies, or an error that says how to have it."""
    where = data_folder(folder)
    place = locate(wanted, where)
    if place is None:
        raise EngramError(
            f"{wanted.title} is not in {str(where)!r}, which has no {wanted.folder or wanted.file}:"
            " name the folder that has it with --data or ENGRAM_DATA, or run "
            f"`engram data fetch {wanted.name}`."
        )
    return place


def locate(source: Source, folder: Path) -> Path | None:
    """Return where a source lies in a folder: unpacked, or else its archive."""
    if source.name not in _FORMS:
        return _existing(folder / source.file)
    forms = _FORMS[source.name]
    unpacked = (
        folder / form.folder for form in forms if (folder / form.folder / form.mark).exists()
    )
    archives = (_existing(folder / form.archive) for form in forms)
    return next(unpacked, None) or next(filter(None, archives), None)


def data_folder(folder: Path | None = None) -> Path:
    """Return the folder that is given, else ``$ENGRAM_DATA``, else one in the cache."""
    given = os.environ.get("ENGRAM_DATA")
    place = folder if folder is not None else Path(given) if given else None
    try:
        return cache_folder() / "data" if place is None else place.expanduser()
    except RuntimeError:
        raise EngramError(f"There is no home folder as in {str(place)!r}.") from None


def _layout(source: Source, place: Path) -> Layout:
    """Return the layout of what was located; an archive is unpacked into the cache first."""
    form = next(form for form in _FORMS[source.name] if place.name in (form.folder, form.archive))
    if place.name == form.archive:
        place = _unpacked(source, form, place)
    return form.layout(place)


def _unpacked(source: Source, form: _Form, archive: Path) -> Path:
    """Return the folder in an archive, unpacked once for the archive as it is."""
    state = archive.stat()
    text = f"{archive.absolute()} {state.st_size} {state.st_mtime_ns}"
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    into = cache_folder() / "unpacked" / f"{source.name}-{key}"
    if (into / form.folder).is_dir():
        return into / form.folder
    return unpack(archive, into, form.folder, limit=2 * source.unpacked)


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
