"""What searches longer than these tests have found, once each; all of it raised something else."""

import json
import zipfile

import pytest
import torch
from fuzz_cases import attempt, refused
from test_fuzz_results import CHOICE, ROW

from engram.app import runs
from engram.app.studies import read_study
from engram.lab import protocol
from engram.lab.data import load, unpack
from engram.memory import Fifo, Memory
from engram.rules import GEM


def _memory():
    memory = Memory(Fifo(4))
    for _ in range(2):
        memory.add((torch.ones(2, 3), torch.tensor([0, 1])))
    return memory


@pytest.mark.parametrize(
    "call",
    [
        lambda: GEM(ridge=2**64),
        lambda: runs.check_seeds(10**400),
        lambda: read_study("\0.toml"),
        lambda: _memory().add((torch.ones(2, 3).to_sparse(), torch.tensor([0, 1]))),
    ],
)
def test_a_call_is_refused(call):
    assert refused(attempt(call))


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("storage", "structure", None),
        ("draws", "available", torch.tensor([1, 2])),
        ("draws", "block", 10**12),
        ("draws", "block", 1.0),
    ],
)
def test_a_memory_s_state_is_refused(part, name, value):
    state = _memory().state_dict()
    state[part][name] = value
    assert refused(attempt(lambda: Memory(Fifo(4)).load_state_dict(state)))


def test_a_row_of_endless_seconds_is_refused():
    spec = protocol.specify("permuted-mnist", "van", tasks=1, examples=10)
    outcome = protocol.Outcome(0, [[0.5]], [[0.1]], 10**400, "cpu", {})
    assert refused(attempt(lambda: runs.record(spec, outcome, "engram run")))


@pytest.mark.parametrize("entry", [ROW, CHOICE])
def test_lines_with_an_endless_number_make_no_store(tmp_path, entry, engram):
    """No number is infinite in JSON, but 1e999 is read as one that is."""
    facts = {**ROW["outcome"], "facts": {"loss": "here"}}
    identity = {**CHOICE["identity"], "numerics": ["here"]}
    changed = {"outcome": facts} if entry is ROW else {"identity": identity}
    text = json.dumps({**entry, **changed}).replace('"here"', "1e999")
    (tmp_path / "lines").write_text(text)
    merged = engram("results", "--store", tmp_path / "store", "--merge", tmp_path / "lines")
    assert (merged.code, merged.err.startswith("engram: Line 1 ")) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]


def test_a_number_of_a_study_is_no_longer_than_toml_has_them(tmp_path):
    path = tmp_path / "a.toml"
    runs_ = '[[runs]]\nbenchmark = "permuted-mnist"\nmethods = ["van"]\nseeds = 0x'
    path.write_text(f'title = "x"\n{runs_}{"f" * 5000}')
    assert refused(attempt(lambda: read_study(str(path))))


def test_damage_in_an_archive_compressed_by_lzma_is_told(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("birds/a.txt", b"first" * 500)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    for place in range(41, 60):
        content[place] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(content)
    assert refused(attempt(lambda: unpack(tmp_path / "a.zip", tmp_path, "birds", limit=10**6)))


def test_a_deep_name_in_a_pickle_does_not_end_the_process(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cifar-100-python").mkdir()
    deep = b"\x80\x02}K\x01" + b"\x85" * 300_000 + b"K\x01s."
    for name in ("train", "test"):
        (tmp_path / "cifar-100-python" / name).write_bytes(deep)
    assert refused(attempt(lambda: load("cifar-100", tmp_path)))
