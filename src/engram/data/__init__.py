"""The data under the streams: official archives and folders, decoded once."""

from engram.data.catalogue import Source, checksum, load, sources
from engram.data.download import Progress, fetch
from engram.data.images import ImageSet
from engram.data.photos import Group, Photos, load_photos, natural
from engram.data.tables import Columns, read_table
from engram.data.weights import load_weights, weights_checksum

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
