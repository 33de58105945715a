"""Step records: what a step was made of, told by the vectors themselves, and nothing disturbed."""

import numpy as np
import pytest
import torch

from engram.errors import EngramError
from engram.gradients import Mix
from engram.lab.engine import Rows
from engram.lab.methods import method_entry
from engram.lab.protocol import run, specify
from engram.lab.protocol.records import COLUMNS, StepRecord, paper_cosine, step_facts
from engram.rules import AGEM, MEGA1, MEGA2
from engram.testing import Subject

pytestmark = pytest.mark.numerical

SEEDS = (0, 3)


@pytest.fixture(autouse=True)
def few_test_images(few_mnist):
    few_mnist(100)


def small(method, seeds=SEEDS, **options):
    return run(specify("permuted-mnist", method, tasks=3, examples=55), seeds, **options)


def cosine(one, other):
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def a_step(draws, rule, count=1):
    """A mix of random gradients of two runs, and for each run what a reader would measure."""
    rows, losses = draws.normal(size=(2, 1 + count, 7)), draws.uniform(0.2, 3, (2, 1 + count))
    gram = torch.from_numpy(rows @ rows.transpose(0, 2, 1))
    weights = rule(torch.from_numpy(losses), gram)
    expected = []
    for gradients, mine, shares in zip(rows, losses, weights.numpy(), strict=True):
        current, reference = gradients[0], gradients[1:].mean(0)
        values = {
            "current_loss": mine[0],
            "reference_loss": mine[1:].mean(),
            "current_weight": shares[0],
            "reference_weight": shares[1:].sum(),
            "cosine": cosine(current, reference),
            "k1": mine[0] / mine[1:].mean(),
            "k2": np.linalg.norm(current) / np.linalg.norm(reference),
            "mixture_cosine": cosine(current, shares @ gradients),
        }
        expected.append([values[name] for name in COLUMNS])
    return Mix(torch.from_numpy(losses), gram, weights), expected


@pytest.mark.parametrize("rule", [MEGA1(1e-3), MEGA2(), AGEM()])
@pytest.mark.parametrize("by_position", [False, True])
def test_the_numbers_are_those_of_the_vectors(rule, by_position):
    draws = np.random.default_rng(1)
    record, expected = StepRecord(2), []
    record.begin_task(5, torch.device("cpu"))
    for step in range(5):
        mix, told = a_step(draws, rule)
        record.take(mix, step, torch.tensor([step]) if by_position else None)
        expected.append(told)
    for number in range(2):
        found = record.of(number)
        assert found["step"].tolist() == [0, 1, 2, 3, 4]
        ours = np.stack([found[name] for name in COLUMNS], 1)
        assert np.allclose(ours, np.array(expected)[:, number], rtol=1e-5, atol=1e-6)


def test_several_reference_rows_are_told_by_their_mean():
    rule = lambda losses, gram: torch.tensor([[1.0, 0.5, 0.0, 2.0]] * 2).double()  # noqa: ARG005, E731
    mix, expected = a_step(np.random.default_rng(2), rule, count=3)
    record = StepRecord(2)
    record.begin_task(1, torch.device("cpu"))
    record.take(mix, 0, None)
    assert np.allclose([record.of(0)[name][0] for name in COLUMNS], expected[0], rtol=1e-5)


@pytest.mark.usefixtures("double_mnist")
@pytest.mark.parametrize("method", ["van", "ewc", "icarl", "gem", "mega-i", "mega-ii"])
def test_recording_changes_no_number(method):
    plain, recorded = small(method), small(method, record_every=1)
    for one, other in zip(plain, recorded, strict=True):
        assert (one.accuracy, one.curve) == (other.accuracy, other.curve)
        assert one.steps is None
        assert len(other.steps["k2"]) == other.facts["recorded_steps"] == 3 * 6
        assert other.steps["task"].tolist() == [task for task in range(3) for _ in range(6)]
        assert np.isfinite(other.steps["current_loss"]).all()


def test_mega_i_is_compared_with_its_memory_though_its_step_needs_no_comparison():
    (outcome,) = small("mega-i", [0], record_every=1)
    steps = outcome.steps
    first = steps["task"] == 0
    assert np.isnan(steps["k2"][first]).all()
    assert np.isfinite(steps["k2"][~first]).all()
    mixed = ~first & (steps["current_weight"] == 1)
    assert mixed.any()
    assert np.allclose(steps["reference_weight"][mixed], 1 / steps["k1"][mixed], rtol=1e-5)


def test_of_every_few_steps_the_last_is_kept():
    (every,), (fourth,) = (small("mega-ii", [0], record_every=n) for n in (1, 4))
    assert fourth.steps["step"].tolist() == [3, 5] * 3
    kept = np.isin(every.steps["step"], [3, 5])
    for name in COLUMNS:
        assert np.array_equal(every.steps[name][kept], fourth.steps[name], equal_nan=True)


@pytest.mark.usefixtures("double_mnist")
def test_a_run_s_records_are_the_same_alone_and_stacked():
    alone, stacked = small("mega-i", [3], record_every=1), small("mega-i", record_every=1)
    for name in COLUMNS:
        one, other = alone[0].steps[name], stacked[1].steps[name]
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)  # they are in float32


def test_a_record_goes_on_from_its_state():
    draws = np.random.default_rng(3)
    mixes = [a_step(draws, MEGA2())[0] for _ in range(7)]
    whole, first, second = StepRecord(2), StepRecord(2), StepRecord(2)
    for record in (whole, first):
        record.begin_task(3, torch.device("cpu"))
        for step in range(3):
            record.take(mixes[step], step, None)
        record.begin_task(4, torch.device("cpu"))
        for step in range(2):
            record.take(mixes[3 + step], step, None)
    second.begin_task(4, torch.device("cpu"))
    second.load_state_dict(first.state_dict())
    for record in (whole, second):
        for step in range(2, 4):
            record.take(mixes[3 + step], step, None)
    for name, column in whole.of(1).items():
        assert np.array_equal(column, second.of(1)[name], equal_nan=True)


def test_fewer_than_every_step_is_refused():
    with pytest.raises(EngramError, match="record_every must be at least 1, not -1"):
        StepRecord(1, -1)


def test_the_paper_s_angles_are_those_of_the_mixtures():
    draws = np.random.default_rng(4)
    for _ in range(200):
        current, reference = draws.normal(size=(2, 5))
        losses = torch.from_numpy(draws.uniform(0.05, 5, 2))
        rows = np.stack([current, reference])
        gram = torch.from_numpy(rows @ rows.T)
        k1, k2 = float(losses[0] / losses[1]), np.linalg.norm(current) / np.linalg.norm(reference)
        between = np.array(cosine(current, reference))
        for k, rule in ((k1 * k2, MEGA1(0.0)), (k1, MEGA2())):
            mixture = rule(losses, gram).numpy() @ rows
            assert paper_cosine(np.array(k), between) == pytest.approx(cosine(current, mixture))


def test_the_facts_of_mega_i_are_counted_by_hand():
    (outcome,) = small("mega-i", [0], record_every=1)
    facts, steps = outcome.facts, outcome.steps
    known = steps["k2"][steps["task"] > 0]
    assert facts["k2_below_1_percent"] == pytest.approx(100 * sum(known < 1) / len(known))
    first, counts = facts["log_k2_histogram"].split(": ")
    edges = [(int(first) + place) / 4 for place in range(len(counts.split()) + 1)]
    by_hand, _ = np.histogram(np.log(known.astype(float)), edges)
    assert [int(count) for count in counts.split()] == by_hand.tolist()
    mixed = (steps["task"] > 0) & (steps["current_weight"] == 1)
    assert facts["mixing_percent"] == pytest.approx(100 * mixed.sum() / len(known))
    ahead = steps["k2"][mixed] >= 1  # which is when θ1 <= θ2
    assert facts["theta_1_at_most_theta_2_percent"] == pytest.approx(100 * ahead.mean())
    assert facts["cos_theta_1_error"] < 1e-4
    assert facts["cos_theta_2_error"] < 1e-6


def test_methods_without_a_memory_have_no_such_facts():
    (outcome,) = small("ewc", [0], record_every=1)
    assert "k2_below_1_percent" not in outcome.facts
    assert "theta_1_at_most_theta_2_percent" not in small("mega-ii", [0], record_every=1)[0].facts


def test_rows_compare_only_where_they_must_or_are_told_to():
    entry = method_entry("mega-i")
    method = Subject(entry, entry.settings()).fresh_run().method
    assert isinstance(method.rows, Rows)
    assert not method.rows.compare


def test_no_finite_k2_gives_no_histogram():
    nothing = {name: np.full(3, np.nan, np.float32) for name in COLUMNS}
    entry = method_entry("mega-i")
    method = Subject(entry, entry.settings()).fresh_run().method
    assert step_facts(nothing, method) == {"recorded_steps": 3}
    endless = {**nothing, "k2": np.array([np.inf, np.nan, np.nan], np.float32)}
    assert step_facts(endless, method)["log_k2_histogram"] == "0:"
