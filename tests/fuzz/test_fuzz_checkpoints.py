"""Checkpoints that were damaged, or made by somebody else: never a state that was not saved."""

import pytest
import torch
from fuzz_cases import attempt, check_sentence, generated, refused
from fuzz_files import changes, contents, damaged, furnish, names
from fuzz_junk import changed, junk, mostly, places
from hypothesis import strategies as st

from engram.lab.protocol import Checkpoint, run, specify
from engram.lab.protocol import checkpoint as files
from engram.lab.protocol import checkpoint as forms

RUN = {"identity": {"method": "van", "tasks": 2}, "seeds": [0, 1]}
STATE = {"task": 1, "weights": torch.arange(4.0), "more": [1, {"nan": float("nan")}]}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


def _silent(line):
    check_sentence(line)


def _saved(path):
    Checkpoint(path).save(RUN, STATE, "task 2 of 2, step 0")
    return path.read_bytes()


@generated(200, changes=changes, before=st.booleans())
def test_a_damaged_checkpoint_gives_way_to_the_one_before(place, changes, before):
    path, told = place / "run.safetensors", []
    whole = _saved(path)
    if before:
        _saved(path)
    content = damaged(whole, changes)
    path.write_bytes(content)
    checkpoint = Checkpoint(path, message=told.append)
    state = attempt(lambda: checkpoint.load(RUN))
    if content == whole or (before and not refused(state)):
        assert str(state) == str(STATE)
    else:
        assert state is None or refused(state)
    assert bool(told) == (content != whole and not refused(state))
    for line in told:
        check_sentence(line)
    checkpoint.remove()
    assert not list(place.iterdir())


JSON = [None, True, -1, 1e300, "x", "a\nb", [], {}, {"tensor": "x"}, {"list": 3}, [[]], ...]
JSON += [{"tensor": []}, {"float": []}, {"dict": {"a": {"tensor": "state/weights"}}}]


@generated(
    200,
    path=places,
    value=st.sampled_from(JSON),
    version=st.sampled_from(["1", "1", "1", "0", "2", "", "x", "9" * 5000, "٣", "-1"]),
)
def test_a_checkpoint_that_somebody_made_is_read_or_refused(place, path, value, version):
    file = place / "made.safetensors"
    _saved(file)
    held = files.read(file)
    document = changed(held.document, path, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forms, "VERSION", version)
        file.write_bytes(b"".join(forms.to_pieces(forms.Contents(document, held.tensors))))
    checkpoint = Checkpoint(file, message=_silent)
    if refused(attempt(lambda: checkpoint.load(RUN))):
        assert checkpoint.last is None
    Checkpoint.peek(file)
    checkpoint.remove()


@generated(70, name=mostly(names), every=mostly(st.floats(0, 100)))
def test_a_checkpoint_is_saved_whole_under_a_possible_name_or_not_at_all(
    tmp_path_factory, monkeypatch, name, every
):
    folder = tmp_path_factory.mktemp("names")
    furnish(folder)
    monkeypatch.chdir(folder)
    path = f"{name}.safetensors" if isinstance(name, str) else name
    told = []
    checkpoint = attempt(lambda: Checkpoint(path, every, message=told.append))
    if refused(checkpoint):
        return
    before = contents(folder)
    if refused(attempt(lambda: checkpoint.load(RUN))):
        assert contents(folder) == before
        return
    checkpoint.save(RUN, STATE, "task 2 of 2, step 0")
    if not told:
        assert str(Checkpoint(path).load(RUN)) == str(STATE)
        checkpoint.remove()
    assert not [*folder.rglob("*.safetensors")]


@generated(150, state=st.dictionaries(st.sampled_from(["a", "b/c", "\n"]), junk, max_size=2))
def test_what_no_file_holds_is_refused_and_the_one_before_is_kept(place, state):
    path = place / "kept.safetensors"
    _saved(path)
    checkpoint = Checkpoint(path, message=_silent)
    if refused(attempt(lambda: checkpoint.save(RUN, state, "here"))):
        assert str(checkpoint.load(RUN)) == str(STATE)
    else:
        assert checkpoint.load(RUN).keys() == state.keys()
    checkpoint.remove()


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    """A run that was saved after its first step."""
    path = tmp_path_factory.mktemp("halfway") / "run.safetensors"
    settings = {"curve_images": "10", "batch_size": "5"}
    spec = specify("permuted-mnist", "mega-i", tasks=1, examples=10, overrides=settings)
    checkpoint = Checkpoint(path)
    checkpoint.pause()
    with pytest.raises(Checkpoint.Paused):
        run(spec, [0], checkpoint=checkpoint)
    return spec, path


@pytest.mark.parametrize(
    ("name", "value"),
    [("task", 1), ("step", -1), ("step", "x"), ("record", None), ("method", {"dict": {}})],
)
def test_a_run_does_not_go_on_from_a_state_that_is_none(halfway, name, value):
    spec, path = halfway
    held = files.read(path)
    state = {"dict": {**held.document["state"]["dict"], name: value}}
    document = {**held.document, "state": state}
    made = path.with_name("made.safetensors")
    made.write_bytes(b"".join(forms.to_pieces(forms.Contents(document, held.tensors))))
    assert refused(attempt(lambda: run(spec, [0], checkpoint=Checkpoint(made))))
