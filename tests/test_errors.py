"""What sentences quote: values, and the suggestion for a name that nobody knows."""

import re

import pytest

from engram.errors import shown, unknown

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


class Unwilling:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (10**5000, "an integer of 16610 bits"),  # which Python does not write
        ([10**5000], "a list"),
        (Unwilling(), "an Unwilling"),
    ],
    ids=["a long integer", "a list of them", "an object without a repr"],
)
def test_what_cannot_be_quoted_is_said_in_words(value, words):
    assert shown(value) == words
