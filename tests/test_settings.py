"""Settings: texts become values of the fields' types, within their bounds."""

from dataclasses import dataclass
from typing import Literal

import pytest

from engram.errors import EngramError
from engram.lab.settings import Settings, parse, setting


@dataclass(frozen=True)
class Knobs(Settings):
    rate: float = setting(0.1, "a rate", above=0, most=2)
    size: int = setting(10, "a size", least=1)
    kind: Literal["plain", "fancy"] = setting("plain", "a kind")
    shared: bool = setting(False, "a flag")


def test_texts_become_values_of_the_fields_types():
    texts = {"rate": "1e-3", "size": "7", "kind": "fancy", "shared": "True"}
    knobs = Knobs(**parse(Knobs, texts))
    assert knobs.as_dict() == {"rate": 1e-3, "size": 7, "kind": "fancy", "shared": True}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("rates", "1", "There is no setting 'rates' (did you mean 'rate'?); valid are"),
        ("rate", "", "rate must be a number, not ''."),
        ("rate", "fast", "rate must be a number, not 'fast'."),
        ("rate", "nan", "rate must be a finite number and above 0 and at most 2, not nan."),
        ("rate", "0", "above 0 and at most 2, not 0.0."),
        ("rate", "1e400", "not inf."),
        ("size", "1.5", "size must be a whole number, not '1.5'."),
        ("size", "0", "size must be a whole number below 2^31 and at least 1, not 0."),
        ("size", str(2**31), "at least 1, not 2147483648."),
        ("size", "9" * 400, "size must be a whole number below 2^31 and at least 1, not 999"),
        ("kind", "Plain", "There is no value of kind 'Plain' (did you mean 'plain'?)"),
        ("shared", "1", "shared must be true or false, not '1'."),
    ],
)
def test_impossible_values_are_refused_in_one_sentence(name, text, sentence):
    with pytest.raises(EngramError) as error:
        Knobs(**parse(Knobs, {name: text}))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"kind": "fancier"}, "There is no value of kind 'fancier' (did you mean 'fancy'?)"),
        ({"kind": 3}, "There is no value of kind '3'; valid are fancy, plain."),
        ({"size": 2.5}, "size must be a whole number, not 2.5."),
        ({"size": True}, "size must be a whole number, not True."),
        ({"size": "7"}, "size must be a whole number, not '7'."),
        ({"rate": None}, "rate must be a number, not None."),
        ({"shared": 1}, "shared must be true or false, not 1."),
    ],
)
def test_values_of_another_type_are_refused_in_one_sentence(values, sentence):
    with pytest.raises(EngramError) as error:
        Knobs(**values)
    assert sentence in str(error.value)


def test_a_whole_number_will_do_for_a_number():
    assert Knobs(rate=1).rate == 1
