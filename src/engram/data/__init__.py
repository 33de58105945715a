"""The data under the streams: official archives and folders, decoded once."""

from engram.data._catalogue import Source
from engram.data._download import Progress
from engram.data._fetch import fetch
from engram.data._images import ImageSet
from engram.data._load import checksum, load, sources
from engram.data._photo_tree import Group, natural
from engram.data._photos import Photos, load_photos
from engram.data._tables import Columns, read_table
from engram.data._weights import load_weights, weights_checksum

__all__ = [
    "Columns",
    "Group",
    "ImageSet",
    "Photos",
    "Progress",
    "Source",
    "checksum",
    "fetch",
    "load",
    "load_photos",
    "load_weights",
    "natural",
    "read_table",
    "sources",
    "weights_checksum",
]
