"""Bytes as a bad disk, a bad network or somebody with an editor leaves them; hostile names."""

import os

from hypothesis import strategies as st

_PIECES = [b"\0", b"\n", b"\r", b"\xff\xfe", b'"', b"'", b",", b"[", b"{", b"=", b"-", b"\\u0000"]
_PIECES += [b"9" * 5000, b"1e999", b"NaN", b"null", b"true", b"\xef\xbb\xbf", b"PK\x03\x04"]

changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "flip", "cut", "insert", "insert", "copy"]),
        st.integers(0, 2**16),
        st.integers(0, 2**16),
    ),
    min_size=1,
    max_size=3,
)


def damaged(content, changes):
    """Return the content with a bit flipped, its end cut off, or something put into it."""
    for kind, place, more in changes:
        size = max(len(content), 1)
        at, other = place % size, more % size
        if kind == "cut":
            content = content[:at]
        elif kind == "insert":
            content = content[:at] + _PIECES[more % len(_PIECES)] + content[at:]
        elif kind == "copy":
            content = content[:at] + content[other : other + 9] + content[at + 9 :]
        elif content:
            flipped = content[at] ^ 1 << more % 8
            content = content[:at] + bytes([flipped]) + content[at + 1 :]
    return content


NAMES = ["new", "a\nb", "\0", "a\0b", "\ud800", "\udcff", "x" * 300, "y/" * 3000, "é", "\x1b[31m"]
NAMES += ["", ".", "..", "folder", "nowhere/x", "text/x", "loop", "dangling", "-", "--help", "~no"]
NAMES += ["~no\nbody/x", "/", "/proc/x", ":memory:", "file:x?mode=ro", "a b", "'; --", "text"]
names = st.sampled_from(NAMES)
"""What a file can be called, and what none can; ``furnish`` makes some of them."""


def furnish(folder):
    """Make a folder, a text and links that lead nowhere."""
    (folder / "folder").mkdir()
    (folder / "folder" / "kept").write_text("kept")
    (folder / "text").write_text("text")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere/at/all")


def contents(folder):
    """Return all files in a folder and those in it, by path, with what tells that one changed."""
    found = {}
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            found |= contents(entry.path)
        else:
            state = entry.stat(follow_symlinks=False)
            found[entry.path] = (state.st_size, state.st_mtime_ns, state.st_ino)
    return found
