"""What can be had from where, under which licence."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from engram.errors import unknown


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
            bytes=13_000_000_000,  # its page tells no more digits
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


def source(name: str) -> Source:
    """Return the source of that name, or an error that lists the valid ones."""
    if name not in CATALOGUE:
        raise unknown("data set", name, CATALOGUE)
    return CATALOGUE[name]
