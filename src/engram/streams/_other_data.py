"""Data that is known not to be the paper's."""

from __future__ import annotations

OTHER = "other-"  # in front of the checksum of such data


def data_name(checksum: str, *, papers: bool) -> str:
    """Return what results are filed under: the checksum, marked where the data is not the paper's.

    >>> data_name("3d64", papers=False)
    'other-3d64'
    """
    return checksum if papers else f"{OTHER}{checksum}"
