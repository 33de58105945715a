"""How fast the work goes, and how long it will take."""

import pytest
from fake_laboratory import unit_of
from rich.console import Console
from rich.progress import Progress

from engram.app.cli.progress import Bars, Lines, Pace

LINE = "the GPU has too little memory for all at once. They are trained in two parts."


def test_the_pace_counts_every_run_of_a_stack(laboratory):
    now = [0.0]
    spec = laboratory.specify("permuted-mnist", "van")
    units = [unit_of(spec, (0, 1, 2)), unit_of(spec, (3,))]
    pace = Pace(units, lambda: now[0])
    pace.advance(units[0], laboratory.Progress(0, 17, 0, 200))
    now[0] = 10.0
    pace.advance(units[0], laboratory.Progress(0, 17, 100, 200))
    assert pace.share == pytest.approx(1.5 / 4)
    assert str(pace) == "30 steps/s, 0:00:17 left"
    now[0] = 20.0
    pace.end(units[0])
    assert str(pace) == "15 steps/s, 0:00:07 left"


def test_the_time_left_is_told_once_enough_is_trained(laboratory):
    def after(*reports):
        """Report (seconds, step of 1,000) one after another; return what is told at the end."""
        unit = unit_of(laboratory.specify("permuted-mnist", "van"), (0,))
        now = [0.0]
        pace = Pace([unit], lambda: now[0])
        for now[0], step in reports:
            pace.advance(unit, laboratory.Progress(0, 17, step, 1000))
        return str(pace).partition(", ")[2]

    assert after() == ""
    assert after((30, 50)) == ""  # half a minute of loading and compiling tells nothing
    assert after((30, 50), (31, 99)) == ""  # less than 5 % of the steps, and than 10 seconds
    assert after((30, 50), (31, 100)) == "0:00:18 left"  # 50 steps a second, 900 left
    assert after((30, 1), (40, 11)) == "0:16:29 left"  # one a second, 989 left
    assert after((30, 500), (31, 510)) == ""  # it went on from a half: that is nobody's speed here
    assert after((30, 500), (31, 600)) == "0:00:04 left"


def test_the_pace_forgets_what_was_given_up(laboratory):
    now = [0.0]
    unit = unit_of(laboratory.specify("permuted-mnist", "van"), (0, 1))
    pace = Pace([unit], lambda: now[0])
    pace.advance(unit, laboratory.Progress(0, 17, 100, 200))
    now[0] = 10.0
    pace.forget(unit)
    assert pace.share == 0
    assert str(pace) == "0 steps/s"
    for now[0], step in ((20.0, 50), (30.0, 100)):  # the time left is reckoned from here on
        pace.advance(unit, laboratory.Progress(0, 17, step, 200))
    assert str(pace) == "7 steps/s, 0:00:20 left"


@pytest.mark.parametrize("bars", [False, True])
def test_a_line_says_why(laboratory, bars, capsys):
    unit = unit_of(laboratory.specify("permuted-mnist", "van"), (0, 1))
    with Progress(console=Console(stderr=True, width=200)) as display:
        pace = Pace([unit])
        listener = Bars(pace, display) if bars else Lines(pace)
        listener.advanced(unit, laboratory.Progress(0, 17, 100, 200))
        listener.cut(unit, LINE)
        shown = [(task.description, task.completed) for task in display.tasks]
    assert pace.share == 0
    assert shown == ([("all 2 runs", 0)] if bars else [])
    assert f"van, 2 seeds: {LINE}" in capsys.readouterr().err
