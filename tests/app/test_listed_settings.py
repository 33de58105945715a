"""``engram run ... --help-settings``: every setting of a method there, with its value."""

import json

import pytest


@pytest.mark.usefixtures("laboratory")
def test_settings_are_listed_with_their_values(engram):
    words = ["run", "permuted-mnist", "van", "mega-i", "--set", "epsilon=0.5", "--help-settings"]
    lines = [" ".join(line.split()) for line in engram(*words)[1].splitlines()]
    assert lines[0] == "van on permuted-mnist"
    assert "learning_rate=0.1 what learning_rate does" in lines
    assert "epsilon=0.5 what epsilon does" in lines


def test_the_settings_of_the_real_thing_are_listed(engram):
    result = engram("run", "permuted-mnist", "mega-i", "--help-settings")
    assert result.code == 0
    for name in ("learning_rate", "batch_size", "reference_batch", "memory_per_class", "epsilon"):
        assert f"  {name}=" in result.out


def test_what_one_s_own_data_must_be_told_is_listed_before_it_is_told(tmp_path, engram):
    table = tmp_path / "sales.csv"
    table.write_text("price,bought\n1,yes\n2,no\n", "utf-8")
    words = ["run", f"table:{table}", "van", "--help-settings"]
    result = engram(*words)
    assert result.code == 0
    assert "  target= " in result.out
    result = engram(*words, "--set", "parts=2")
    assert result.code == 2
    assert "target must name the column to predict" in result.err
    result = engram(*words, "--tasks", "0")
    assert result.code == 2


def test_settings_of_a_preset_are_its_own(engram):
    words = ["run", "permuted-mnist-200", "mega-i", "--help-settings"]
    result = engram(*words)
    assert result.out.startswith("mega-i on permuted-mnist-200\n")
    assert "  memory_per_class=6 " in result.out


def test_settings_as_json_are_one_object_and_nothing_else(engram):
    arguments = ["run", "permuted-mnist", "mega-i", "van", "--help-settings", "--json"]
    result = engram(*arguments, "--set", "epsilon=0.5")
    listed = json.loads(result.out)
    assert listed["benchmark"] == "permuted-mnist"
    assert [entry["method"] for entry in listed["methods"]] == ["mega-i", "van"]
    assert listed["methods"][0]["settings"]["epsilon"] == 0.5
