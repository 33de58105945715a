"""The file that says what stands in for the paper's data."""

import json
from pathlib import Path

import pytest

from engram.app.report import StandIn, read_stand_ins
from engram.errors import EngramError

BIRDS, ANIMALS = f"other-{'b' * 64}", f"other-{'a' * 64}"
KNOWN = StandIn("split-cub", "birds of CUB", "The network was not pretrained on ImageNet.")
GOOD = {BIRDS: KNOWN._asdict()}


def test_stand_ins_are_read_from_json():
    assert read_stand_ins(json.dumps(GOOD)) == {BIRDS: KNOWN}
    assert read_stand_ins("{}") == {}


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ([], "must be a JSON object"),
        ({BIRDS[:-1]: GOOD[BIRDS]}, "must be other- and 64 digits of 0 to f, not 'other-bbb"),
        ({"b" * 64: GOOD[BIRDS]}, "must be other- and 64 digits of 0 to f, not 'bbb"),
        ({BIRDS: {"label": "x"}}, "stand-in other-bbbbbbbbbb must have benchmark, label, note"),
        ({BIRDS: {**GOOD[BIRDS], "top-1": 45}}, "nothing else"),
        ({BIRDS: {**GOOD[BIRDS], "benchmark": "split-cup"}}, "did you mean 'split-cub'"),
        (
            {BIRDS: {**GOOD[BIRDS], "label": ""}},
            "label of stand-in other-bbbbbbbbbb must be",
        ),
        ({BIRDS: {**GOOD[BIRDS], "label": "[b]"}}, "60 plain letters, not '[b]'"),
        ({BIRDS: {**GOOD[BIRDS], "label": "x" * 61}}, "60 plain letters"),
        (
            {BIRDS: {**GOOD[BIRDS], "note": 45}},
            "note of stand-in other-bbbbbbbbbb must be",
        ),
        ({BIRDS: {**GOOD[BIRDS], "note": "a\nb"}}, "must be one line"),
        ({**GOOD, ANIMALS: GOOD[BIRDS]}, "must not be that of two stand-ins"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(entries, sentence):
    with pytest.raises(EngramError) as error:
        read_stand_ins(json.dumps(entries))
    assert sentence in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_what_is_no_json_is_refused():
    with pytest.raises(EngramError, match="must be JSON"):
        read_stand_ins("{")


def test_the_accuracy_in_the_note_is_that_of_the_recorded_weights():
    root = Path(__file__).parents[2]
    story = json.loads((root / "results" / "tiny-imagenet-weights.json").read_text("utf-8"))
    committed = (root / "src" / "engram" / "app" / "report" / "stand_ins.json").read_text("utf-8")
    known = read_stand_ins(committed).values()
    (note,) = [each.note for each in known if "pretrained" in each.label]
    assert f"{story['pretraining']['top_1']:.2%}".replace("%", " %") in note
