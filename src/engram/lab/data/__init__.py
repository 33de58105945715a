"""The data under the streams: official archives and folders, decoded once."""

from engram.lab.data.archives import unpack
from engram.lab.data.catalogue import Source, checksum, data_folder, load, sources
from engram.lab.data.download import Progress, fetch
from engram.lab.data.images import Decoded, ImageSet, Layout, cached, decode_images
from engram.lab.data.photos import Group, Photos, decode_photos, find_photos, load_photos, natural
from engram.lab.data.tables import Columns, read_table
from engram.lab.data.weights import load_checkpoint, load_weights, weights_checksum

__all__ = [
    "Columns",
    "Decoded",
    "Group",
    "ImageSet",
    "Layout",
    "Photos",
    "Progress",
    "Source",
    "cached",
    "checksum",
    "data_folder",
    "decode_images",
    "decode_photos",
    "fetch",
    "find_photos",
    "load",
    "load_checkpoint",
    "load_photos",
    "load_weights",
    "natural",
    "read_table",
    "sources",
    "unpack",
    "weights_checksum",
]
