"""An artefact of somebody else's: its files are read, and no code of theirs is run unasked."""

import json

import pytest

import engram
from engram import production
from engram.errors import EngramError
from engram.production.artefact import read_json, write_json
from examples.weeks import week

CODE = """
from pathlib import Path

Path(__file__).with_name("ran").touch()


def build(shape, outputs, **arguments):
    raise SystemExit("this code was run")
"""


def rewritten(path, **changes):
    """Change a document as somebody does who can write a checksum."""
    write_json(path, read_json(path) | changes)


@pytest.mark.parametrize("load", [engram.load, lambda m: production.update(m, week(2, 30))])
def test_a_network_whose_name_is_a_file_or_a_module_is_not_run(churn, tmp_path, load, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text(CODE)
    (churn / "versions" / "0001" / "evil.py").write_text(CODE)
    for name in (f"{tmp_path}/evil.py:build", "evil:build", "evil.py:build", "hf:evil.py:build"):
        rewritten(churn / "versions" / "0001" / "network.json", name=name, arguments={})
        with pytest.raises(EngramError):
            load(churn)
    assert not list(tmp_path.rglob("ran"))


@pytest.mark.parametrize(
    "name", ["../../../outside", "/etc/hostname", "code/../../../outside", "weights.safetensors"]
)
def test_the_files_of_a_network_lie_in_its_version(churn, tmp_path, name):
    (tmp_path / "outside").write_text("not ours")
    rewritten(churn / "versions" / "0001" / "network.json", files={name: "0" * 64})
    with pytest.raises(EngramError, match="is no file of a network"):
        engram.load(churn)


@pytest.mark.parametrize("name", ["network.json", "preprocessing.json", "version.json"])
@pytest.mark.parametrize("document", [{}, {"more": 1}, {"name": 3, "files": 7, "inputs": []}])
def test_a_document_of_another_shape_is_one_sentence(churn, name, document):
    write_json(churn / "versions" / "0001" / name, document)
    with pytest.raises(EngramError, match=f"{name}' is damaged"):
        engram.load(churn)


def test_a_pointer_to_elsewhere_is_refused(churn):
    for moves in ([{"version": "../../x"}], [{"version": -1}], [{}], [], "x", 3):
        write_json(churn / "current", {"moves": moves})
        with pytest.raises(EngramError):
            engram.load(churn)
    (churn / "current").write_bytes(b"\xff\xfe{")
    with pytest.raises(EngramError, match="current' is damaged"):
        engram.load(churn)


def test_a_truncated_file_is_refused_by_name(churn):
    folder = churn / "versions" / "0001"
    for name in ("memory.safetensors", "exam.safetensors", "seen.safetensors"):
        whole = (folder / name).read_bytes()
        for broken in (b"", whole[:-7], whole[:40], whole[:-1] + bytes([whole[-1] ^ 1])):
            (folder / name).write_bytes(broken)
            with pytest.raises(EngramError, match=name):
                production.update(churn, week(2, 30))
        (folder / name).write_bytes(whole)
    for broken in (b"", b"[]", b"{}", json.dumps({"format": "x"}).encode()):
        (churn / "artefact.json").write_bytes(broken)
        with pytest.raises(EngramError):
            engram.load(churn)
