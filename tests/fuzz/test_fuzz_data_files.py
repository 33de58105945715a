"""Archives, pickles and weights from the net: what is in them, or one sentence, and no traces."""

import io
import pickle
import stat
import tarfile
import zipfile

import pytest
import torch
from fuzz_cases import attempt, generated, refused
from fuzz_files import changes, contents, damaged, names
from fuzz_junk import mostly
from hypothesis import strategies as st

from engram.lab.data import load, load_weights, unpack, weights_checksum

LINKS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, b"?"]
INSIDE = ["birds/a", "birds/b/c", "./birds/d", "birds/é", "birds/a b", "beside"]
OUTSIDE = [
    "birds",
    "birds/",
    "birds/a/x",
    "/x",
    "../x",
    "birds/../../x",
    "birds\\x",
    "C:x",
    "",
    ".",
    "birds/a:b",
    "x" * 300,
]
packed = st.lists(
    st.tuples(
        st.sampled_from(INSIDE * 9 + OUTSIDE),
        st.sampled_from([b"", b"content", b"x" * 5000]),
        st.sampled_from([None] * 40 + LINKS),
    ),
    max_size=4,
    unique_by=lambda file: file[0],
)


def _tar(files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content, link in files:
            member = tarfile.TarInfo(name)
            member.size = 0 if link else len(content)
            if link:
                member.type, member.linkname = link, "/etc/passwd"
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _zip(files, kind):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", kind) as archive:
        for name, content, link in files:
            member = zipfile.ZipInfo(name or "nameless")
            member.compress_type = kind
            member.external_attr = (stat.S_IFLNK | 0o777) << 16 if link else 0
            archive.writestr(member, content)
    return made.getvalue()


ZIPPED = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "into").mkdir()
    return folder


@generated(
    250,
    files=packed,
    kind=st.sampled_from(["tar", "tar", *ZIPPED]),
    changes=st.just([]) | changes,
    limit=st.sampled_from([6000] * 5 + [10]),
)
def test_an_archive_is_unpacked_within_its_folder_or_not_at_all(place, files, kind, changes, limit):
    files = [("birds/first", b"content", None), *files]
    made = _tar(files) if kind == "tar" else _zip(files, kind)
    (place / "archive").write_bytes(damaged(made, changes))
    before = contents(place)
    outcome = attempt(lambda: unpack(place / "archive", place / "into", "birds", limit=limit))
    if refused(outcome):
        assert contents(place) == before
        return
    left = sorted(place.rglob("*"))
    assert sum(path.stat().st_size for path in left if path.is_relative_to(outcome)) < 30_000
    for path in reversed(left):
        if path.is_relative_to(outcome):
            assert path.is_file() or path.is_dir()
            assert not path.is_symlink()
            path.rmdir() if path.is_dir() else path.unlink()
    assert contents(place) == before


class _Hostile:
    def __reduce__(self):
        return print, ("unpickled",)


PICKLED = {"data": ["a", 1, (2, None)], "fine_labels": [1, 2], "more": {"deep": True}}
PICKLES = [pickle.dumps(PICKLED, protocol=2), pickle.dumps({"a": _Hostile()}, protocol=2)]
opcodes = st.lists(
    st.sampled_from([b"}", b"]", b"(", b")", b"K\x01", b"U\x01x", b"s", b"u", b"a", b"e", b"t"])
    | st.sampled_from([b"q\x00", b"h\x00", b"R", b"b", b"N", b"0", b"2", b"\x85" * 100_000, b"c"])
    | st.sampled_from([b"T\xff\xff\xff\x7f", b"X\xff\xff\xff\xff", b"cos\nsystem\n", b"\x8a\xff"]),
    max_size=9,
)


@pytest.fixture
def cifar(place, monkeypatch):
    """Return a data folder with an empty CIFAR-100 in it, in Python's form."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    (place / "cifar-100-python").mkdir()
    (place / "cifar-100-python" / "test").touch()
    return place


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
@generated(400, program=opcodes, changes=changes, which=st.sampled_from([0, 0, 1, 2]))
def test_a_pickle_is_refused_and_nothing_is_run(cifar, capsys, program, changes, which):
    content = b"\x80\x02" + b"".join(program) + b"."
    if which < len(PICKLES):
        content = damaged(PICKLES[which], changes)
    (cifar / "cifar-100-python" / "train").write_bytes(content)
    assert refused(attempt(lambda: load("cifar-100", cifar)))  # there is no image in any of them
    assert "unpickled" not in capsys.readouterr().out


BLOCKS = [
    "bn1",
    *(f"layer{layer}.{block}.bn{n}" for layer in "1234" for block in "01" for n in "12"),
]
NEEDED = [
    name
    for norm in BLOCKS
    for name in (f"{norm}.weight", f"{norm}.bias", f"{norm.replace('bn', 'conv')}.weight")
]  # of a ResNet-18


def _weights(suffix):
    from safetensors.torch import save

    tensors = {name: torch.zeros(1) for name in NEEDED}
    if suffix == ".safetensors":
        return save(tensors)
    made = io.BytesIO()
    torch.save(tensors, made)
    return made.getvalue()


WEIGHTS = {suffix: _weights(suffix) for suffix in (".safetensors", ".pth")}


@generated(120, suffix=st.sampled_from([*WEIGHTS, ".pt"]), changes=changes)
def test_damaged_weights_are_tensors_or_refused(place, suffix, changes):
    path = place / f"weights{suffix}"
    path.write_bytes(damaged(WEIGHTS.get(suffix, PICKLES[1]), changes))
    loaded = attempt(lambda: load_weights(path))
    if not refused(loaded):
        assert {*NEEDED} <= {*loaded}
        assert all(isinstance(tensor, torch.Tensor) for tensor in loaded.values())


@generated(80, name=mostly(names), ending=st.sampled_from(["", ".pth", ".safetensors"]))
def test_weights_that_are_not_there_are_refused(place, monkeypatch, name, ending):
    monkeypatch.chdir(place / "into")
    wanted = f"{name}{ending}" if isinstance(name, str) else name
    assert refused(attempt(lambda: load_weights(wanted)))
    assert refused(attempt(lambda: weights_checksum(wanted)))
