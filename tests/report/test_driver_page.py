"""What docs/cluster.md says of the driver's cost is what was measured."""

import json

from tools.docs.cluster import NUMBERS, PAGE, filled


def test_the_page_is_that_of_its_numbers():
    page = PAGE.read_text("utf-8")
    assert filled(page, json.loads(NUMBERS.read_text("utf-8"))) == page


def test_the_bounds_that_were_set_are_kept():
    small, large = json.loads(NUMBERS.read_text("utf-8"))["study"]["measured"]
    assert large["runs"] == 10 * small["runs"] == 10_000
    for found in (small, large):
        assert max(found["milliseconds to plan a run"]) <= 1
        assert max(found["milliseconds to store a run"]) <= 5
        assert max(found["seconds for the report"]) <= 60
