"""The data under the streams: official archives and folders, decoded once."""

from engram.data._catalogue import Source
from engram.data._download import Progress
from engram.data._fetch import fetch
from engram.data._images import ImageSet
from engram.data._load import checksum, load, sources
from engram.data._weights import load_weights, weights_checksum

__all__ = [
    "ImageSet",
    "Progress",
    "Source",
    "checksum",
    "fetch",
    "load",
    "load_weights",
    "sources",
    "weights_checksum",
]
