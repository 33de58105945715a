"""The suggestion for a name that nobody knows."""

import re

import pytest

from engram.errors import unknown

METHODS = ("a-gem", "er", "mega-i", "mega-ii", "multi-task", "prog-nn")
OTHERS = ("folder-photos-42675fa140", "learning_rate", "permuted-mnist", "table-1", "table-2")


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("mega2", "mega-ii"),
        ("MEGA-1", "mega-i"),
        ("Mega_II", "mega-ii"),
        ("AGEM", "a-gem"),
        ("multitask", "multi-task"),
        ("mega-iii", "mega-ii"),
        ("meag-i", "mega-i"),
        ("table 2", "table-2"),
        ("photos", "folder-photos-42675fa140"),
        ("mnist", "permuted-mnist"),
        ("rate", "learning_rate"),
        ("quux", None),
        ("", None),
        ("-", None),
        (7, None),
    ],
)
def test_the_nearest_name_is_suggested(name, suggested):
    found = re.search(r"did you mean '(.*)'\?", str(unknown("name", name, METHODS + OTHERS)))
    assert (found and found[1]) == suggested
