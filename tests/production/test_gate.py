"""The gate: bounds decide, never estimates."""

import numpy as np
import pytest
import scipy.stats
import torch

from engram.errors import EngramError
from engram.lab.targets import Classes, Labels, Numbers
from engram.production import Gate
from engram.production.exam import assess, influences, metric
from engram.production.gate import Part, judge

CLASSES = Classes(("a", "b"))


def answers(right):
    """Return answers of two classes of which these are right."""
    right = torch.as_tensor(right)
    outputs = torch.stack([right.float(), 1 - right.float()], 1) * 5
    return assess(outputs, torch.zeros(len(right), dtype=torch.int64), CLASSES, None)


def flips(total, gained=0, lost=0):
    """Return who was right before and after."""
    before, after = np.ones(total, bool), np.ones(total, bool)
    before[:gained] = False
    after[gained : gained + lost] = False
    return answers(before), answers(after)


def verdict(gate, total, gained=0, lost=0, what="past"):
    parts = [Part(what, "x", np.ones(total, bool))]
    return judge(gate, parts, *flips(total, gained, lost), CLASSES)[0]


def test_the_same_estimate_is_decided_by_how_much_evidence_there_is():
    gate = Gate(max_drop=0.05)
    assert verdict(gate, 50, lost=1) == "undecided"
    assert verdict(gate, 500, lost=10) == "accepted"
    assert verdict(gate, 50, lost=5) == "undecided"
    assert verdict(gate, 1000, lost=100) == "rejected"


def test_without_examples_or_limits_nothing_is_accepted():
    assert verdict(Gate(), 0) == "undecided"
    assert verdict(Gate(), 500, what="new") == "undecided"


def test_one_part_that_is_not_certain_is_enough_to_wait():
    before, after = flips(1000)
    small = np.zeros(1000, bool)
    small[:20] = True
    parts = [Part("past", "", np.ones(1000, bool)), Part("slice", "region=x", small)]
    found, judged, _ = judge(Gate(), parts, before, after, CLASSES)
    assert found == "undecided"
    assert [each.decision for each in judged] == ["accepted", "undecided"]
    looser = Gate.from_json({"slices": {"region": {"max_drop": 0.2}}})
    assert judge(looser, parts, before, after, CLASSES)[0] == "accepted"
    exact = Gate.from_json(
        {"slices": {"region": {"max_drop": 0.2}, "region=x": {"max_drop": 0.01}}}
    )
    assert judge(exact, parts, before, after, CLASSES)[0] == "undecided"


def test_flips_and_gains_have_limits_of_their_own():
    flipping = Gate(max_negative_flips=0.05)
    assert verdict(flipping, 1000, gained=100, lost=100) == "rejected"
    assert verdict(flipping, 1000, gained=10, lost=10) == "accepted"
    before, after = flips(1000, gained=100)
    parts = [Part("past", "", np.arange(1000) >= 500), Part("new", "x", np.arange(1000) < 500)]
    assert judge(Gate(min_gain=0.1), parts, before, after, CLASSES)[0] == "accepted"
    assert judge(Gate(min_gain=0.19), parts, before, after, CLASSES)[0] == "undecided"
    assert judge(Gate(min_gain=0.3), parts, before, after, CLASSES)[0] == "rejected"


def test_a_period_may_be_left_to_all_the_past():
    before, after = flips(1000)
    few = np.arange(1000) < 10
    parts = [Part("past", "", np.ones(1000, bool)), Part("period", "week 1", few)]
    assert judge(Gate(), parts, before, after, CLASSES)[0] == "undecided"
    assert judge(Gate(each_period=False), parts, before, after, CLASSES)[0] == "accepted"


def test_many_parts_are_rejected_no_more_often_than_one():
    """A candidate that is as good as its parent: 20 slices, each at its limit by chance alone."""
    draw, rejected = np.random.default_rng(0), 0
    rows = 20 * 100
    parts = [Part("slice", str(each), np.arange(rows) % 20 == each) for each in range(20)]
    for _ in range(40):
        before, after = (answers(draw.random(rows) < 0.9) for _ in range(2))
        rejected += judge(Gate(max_drop=0.0), parts, before, after, CLASSES)[0] == "rejected"
    assert rejected <= 4


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_the_spread_of_a_metric_is_that_of_its_linear_part(kind):
    """The standard error from the influences against that of a bootstrap."""
    draw = np.random.default_rng(1)
    target = Labels(("x", "y")) if kind == "labels" else Numbers(("x", "y"))
    truth = torch.from_numpy(draw.normal(size=(400, 2)))
    outputs = truth + torch.from_numpy(draw.normal(size=(400, 2)))
    truth = (truth > 0).double() if kind == "labels" else truth
    statistics = assess(outputs.float(), truth, target, None).statistics
    ours = influences(target, statistics).std(ddof=1) / np.sqrt(400)
    drawn = [metric(target, statistics[draw.integers(0, 400, 400)]) for _ in range(2000)]
    assert ours == pytest.approx(np.std(drawn), rel=0.1)


def test_numbers_and_labels_are_judged_by_their_metric():
    draw = np.random.default_rng(2)
    truth = torch.from_numpy(draw.normal(size=(600, 1)))
    target = Numbers(("x",))
    before, worse, same = (
        assess(
            (truth + noise * torch.from_numpy(draw.normal(size=(600, 1)))).float(),
            truth,
            target,
            None,
        )
        for noise in (0.1, 1.0, 0.1)
    )
    parts = [Part("past", "", np.ones(600, bool))]
    assert judge(Gate(max_drop=0.1), parts, before, same, target)[0] == "accepted"
    assert judge(Gate(max_drop=0.1), parts, before, worse, target)[0] == "rejected"
    few = [Part("past", "", np.arange(600) < 20)]
    assert judge(Gate(max_drop=0.1), few, before, worse, target)[0] == "undecided"
    with pytest.raises(EngramError, match="numbers have no flips"):
        judge(Gate(max_negative_flips=0.1), parts, before, same, target)


def test_a_gate_is_read_from_toml(tmp_path):
    path = tmp_path / "gate.toml"
    path.write_text(
        'max_drop = 0.02\nmin_gain = 0\n[slices.region]\nmax_drop = 0.1\n[slices."region=x"]\n'
        "max_negative_flips = 0.2\n"
    )
    gate = Gate.read(path)
    assert (gate.max_drop, gate.min_gain) == (0.02, 0)
    assert gate.slices["region=x"].max_negative_flips == 0.2
    assert Gate.from_json(gate.as_json()) == gate


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max_dropp = 1", "did you mean 'max_drop'"),
        ("max_drop = -0.1", "max_drop must be a number of at least 0"),
        ("max_drop = true", "max_drop must be a number"),
        ("confidence = 1", "confidence must be a number"),
        ("[slices.x]\nmax_loss = 1", "no limit of slices.x 'max_loss'"),
        ("slices = 3", "slices must be a table"),
        ("[slices]\nx = 3", "slices.x must be a table"),
        ("max_drop =", "is no TOML"),
        ("each_period = 1", "each_period must be true or false"),
        ('[periods."week 1"]\nmin_gain = 0.1', "periods are of the past"),
        ('[slices.x]\nmin_gain = "much"', "min_gain must be a number"),
    ],
)
def test_what_is_no_gate_is_refused_in_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "gate.toml"
    path.write_text(text)
    with pytest.raises(EngramError, match=sentence):
        Gate.read(path)


def labelled(wrong):
    """Return answers of two labels, one of which is true of each example, and these are wrong."""
    wrong = torch.as_tensor(wrong)
    truth = torch.eye(2).double()[torch.arange(len(wrong)) % 2]
    outputs = torch.where(wrong[:, None], 1 - truth, truth) * 10 - 5
    return assess(outputs.float(), truth, LABELS, None)


LABELS = Labels(("x", "y"))


def test_labels_that_did_not_change_on_a_few_examples_are_no_evidence():
    """As for classes: without a single flip more than z²/(n + z²) may have been lost."""
    for total, expected in ((30, "undecided"), (70, "undecided"), (80, "accepted")):
        none = np.zeros(total, bool)
        parts = [Part("past", "", np.ones(total, bool))]
        pair = labelled(none), labelled(none)
        assert judge(Gate(max_drop=0.05), parts, *pair, LABELS)[0] == expected
        assert verdict(Gate(max_drop=0.05), total) == expected


@pytest.mark.parametrize("total", [30, 60, 120, 300])
def test_a_fall_of_f1_at_the_limit_is_rarely_accepted(total):
    """One example in twenty goes wrong, and the F1 falls by 0.05; by every number of them."""
    parts = [Part("past", "", np.ones(total, bool))]
    before, accepted = labelled(np.zeros(total, bool)), 0.0
    for wrong in range(total // 5):
        after = labelled(np.arange(total) < wrong)
        if judge(Gate(max_drop=0.05), parts, before, after, LABELS)[0] == "accepted":
            accepted += scipy.stats.binom.pmf(wrong, total, 0.05)
    assert accepted <= 0.025


def test_a_gain_is_asked_of_slices_of_the_new_data():
    gate = Gate.from_json({"slices": {"region": {"min_gain": 0.1}, "region=x": {"min_gain": 0.2}}})
    before, after = flips(1000, gained=150)
    new = np.arange(1000) < 500
    parts = [
        Part("past", "", ~new),
        Part("new slice", "region=x", new),
        Part("new slice", "region=y", new),
    ]
    found, judged, _ = judge(gate, parts, before, after, CLASSES)
    assert found == "accepted"
    assert [each.limits.min_gain for each in judged] == [None, 0.2, 0.1]
    more = Gate.from_json({"slices": {"region=x": {"min_gain": 0.4}}})
    assert judge(more, parts, before, after, CLASSES)[0] == "rejected"
    nothing = [parts[0], Part("new slice", "region=x", np.zeros(1000, bool))]
    assert judge(gate, nothing, before, after, CLASSES)[0] == "undecided"
