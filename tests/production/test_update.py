"""Updates: the parent untouched, the exam kept apart, the pointer moved by the gate alone."""

import json
import shutil

import numpy as np
import pytest
import torch

import engram
from engram import production
from engram.errors import EngramError
from engram.memory import Memory
from engram.production import Gate
from examples.weeks import week


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_an_update_keeps_its_parent_and_says_what_it_did(churn):
    before = contents(churn / "versions" / "0001")
    result = production.update(churn, week(2, 1500), slices=["region", "left", "customer"])
    assert contents(churn / "versions" / "0001") == before
    assert (result.verdict, result.version) == ("undecided", 2)  # by the customers, who are few
    report = result.report
    parts = {(part["what"], part["name"]) for part in report["parts"]}
    assert {("past", ""), ("slice", "region=north"), ("slice", "left=stay")} <= parts
    past = report["parts"][0]
    estimate, low, high = past["difference"]
    assert low < estimate < high
    assert past["after"] - past["before"] == pytest.approx(estimate)
    assert report["memory"]["after"] == 2000
    assert report["cost"]["projected_seconds"] > 0
    assert {each["column"] for each in report["drift"]} >= {"usage", "calls", "region", "target"}
    assert (churn / "versions" / "0002" / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_flips_are_listed_by_the_ids_of_the_exam(churn):
    report = production.update(churn, week(2, 1500)).report
    exam = Memory.load(churn / "versions" / "0002" / "exam.safetensors")
    old = {each.id for each in exam.examples() if each.task == 1}
    (period,) = [part for part in report["parts"] if part["what"] == "period"]
    flips = period["flips"]
    assert set(flips["negative"]) | set(flips["positive"]) <= old
    shares = round(period["negative_flips"][0] * period["examples"])
    assert len(flips["negative"]) == shares
    assert len(flips["positive"]) == period["positive_flips"]


def test_no_example_of_an_exam_is_ever_trained_on(churn):
    first = week(1, 1500)
    again = {name: column + first[name][:500] for name, column in week(2, 500).items()}
    production.update(churn, again, settings={"exam_share": 0.4})
    folder = churn / "versions" / "0002"
    held = [Memory.load(folder / f"{name}.safetensors") for name in ("memory", "exam")]
    batches = [memory.read(range(len(memory))).batch for memory in held]
    both = [(batch["numbers"].tolist(), batch["codes"].tolist()) for batch in batches]
    rows = [{(*one, *other) for one, other in zip(*pair, strict=True)} for pair in both]
    assert not rows[0] & rows[1]


def test_shuffled_labels_are_not_accepted_and_said_to_contradict(churn):
    result = production.update(churn, week(2, 1500, shuffled=True))
    assert result.verdict == "rejected"
    assert result.current == 1
    assert result.report["contradiction"]["contradicts"]
    assert any("contradict the past" in each for each in result.report["reasons"])
    assert [each["verdict"] for each in production.history(churn)] == ["accepted", result.verdict]


def test_too_little_data_is_undecided(tmp_path):
    production.train(week(1, 60), tmp_path / "m", settings={"target": "left", "time": "date"})
    result = production.update(tmp_path / "m", week(2, 60))
    assert result.verdict == "undecided"
    assert result.current == 1
    assert any("examples do not tell" in each for each in result.report["reasons"])


def test_force_lets_it_answer_and_is_recorded(churn):
    gate = Gate(min_gain=0.5)
    result = production.update(churn, week(2, 300), gate=gate, force="the old one is wrong")
    assert (result.verdict, result.current) == ("rejected", 2)
    assert production.history(churn)[1]["forced"] == "the old one is wrong"
    assert production.history(churn)[1]["moves"][0]["reason"] == "the old one is wrong"


def test_where_the_candidate_fails_weights_in_between_are_tried_on_halves_of_the_exam(churn):
    """A whole region changes its mind: all of the step loses too much, half of it does not."""
    columns = week(2, 1500)
    other = {"leave": "stay", "stay": "leave"}
    rows = zip(columns["left"], columns["region"], strict=True)
    columns["left"] = [other[left] if region == "west" else left for left, region in rows]
    gate = Gate(max_drop=0.15, max_contradiction=None)
    settings = {"method": "van", "learning_rate": 0.003}
    result = production.update(churn, columns, gate=gate, settings=settings)
    mixed = result.report["interpolation"]
    assert (result.verdict, result.current) == ("accepted", 2)
    assert mixed["weight"] in (0.25, 0.5, 0.75)
    assert "chosen on one half of the exam, and judged on" in mixed["words"]
    assert mixed["candidate"][0]["decision"] != "accepted"
    whole, half = mixed["candidate"][0]["examples"], result.report["parts"][0]["examples"]
    assert abs(half - whole / 2) < whole / 8
    production.rollback(churn)
    strict = production.update(churn, columns, gate=Gate(max_drop=0.15), settings=settings)
    assert strict.verdict == "rejected"  # since new labels contradict the old ones


def test_a_killed_training_goes_on_to_the_same_weights(churn, tmp_path):
    other = shutil.copytree(churn, tmp_path / "other")

    class Killed(BaseException):
        pass

    def listener(done, of):
        if done == of // 2:
            raise Killed

    with pytest.raises(Killed):
        production.update(churn, week(2, 400), every=0, listener=listener)
    assert (churn / "work" / "checkpoint.safetensors").exists()
    steps = []
    again = production.update(
        churn, week(2, 400), every=0, listener=lambda done, of: steps.append((done, of))
    )
    assert steps[0][0] >= steps[0][1] // 2
    assert not (churn / "work").exists()
    whole = production.update(other, week(2, 400))
    states = [
        engram.load(folder, result.version).network.state_dict()
        for folder, result in ((churn, again), (other, whole))
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_disk_that_takes_no_more_is_one_sentence(churn):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 2_000, 5_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            with pytest.raises(EngramError, match="File too large"):
                production.update(churn, week(2, 60), settings={"passes": 1})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert engram.load(churn).predict(week(3, 5)).version == 1
        assert not [path for path in churn.rglob(".*") if ".partial" in path.name]
    assert production.update(churn, week(2, 60), force="now it has room").current > 1


def test_a_version_that_was_made_and_not_pointed_at_is_found_again(churn, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(production.Artefact, "point", killed)
        with pytest.raises(KeyboardInterrupt):
            production.update(churn, week(2, 1500))
    assert engram.load(churn).version == 1
    result = production.update(churn, week(2, 1500))
    assert (result.version, result.current) == (2, 2)
    assert len(production.history(churn)) == 2


def test_a_first_training_that_was_killed_goes_on(tmp_path, monkeypatch):
    settings = {"target": "left", "time": "date", "tags": "customer", "passes": 2}
    steps = []

    def listener(done, of):
        steps.append(done)
        if len(steps) == of // 2:
            raise KeyboardInterrupt

    def train(folder, data=None, **more):
        production.train(data or week(1, 300), folder, settings=settings, every=0, **more)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "m", listener=listener)
    with pytest.raises(EngramError, match="no version that answers yet"):
        engram.load(tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(production.Artefact, "point", lambda *_: None)  # as if killed before it
        train(tmp_path / "m", listener=listener)
    assert len(steps) == steps[-1] + 1  # that in which it was killed was taken again
    with pytest.raises(EngramError, match="a version of other data or settings"):
        train(tmp_path / "m", week(2, 300))
    train(tmp_path / "m")
    train(tmp_path / "whole")
    states = [engram.load(tmp_path / name).network.state_dict() for name in ("m", "whole")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_rollback_lets_an_earlier_version_answer(churn):
    before = engram.load(churn).predict(week(2, 30)).probabilities
    assert production.update(churn, week(2, 1500)).current == 2
    assert production.rollback(churn) == 1
    assert np.array_equal(engram.load(churn).predict(week(2, 30)).probabilities, before)
    assert production.rollback(churn, to=2, reason="it was right") == 2
    moves = production.Artefact(churn).moves()
    assert [(move["version"], move["how"]) for move in moves] == [
        (1, "train"),
        (2, "update"),
        (1, "rollback"),
        (2, "rollback"),
    ]


@pytest.mark.parametrize("name", ["weights.safetensors", "preprocessing.json", "network.json"])
def test_a_rollback_to_what_cannot_answer_is_refused(churn, name):
    production.update(churn, week(2, 60), force="to have two", settings={"passes": 1})
    (churn / "versions" / "0001" / name).write_bytes(b"{}")
    with pytest.raises(EngramError, match=rf"{name}' (is damaged|was changed)"):
        production.rollback(churn)
    assert engram.load(churn).predict(week(3, 5)).version == 2


def test_the_data_of_the_current_version_is_no_news(churn):
    """A scheduler that finds last week's file gets no second version of it."""
    new = week(2, 80)
    production.update(churn, new, force="to have two", settings={"passes": 1})
    digests = [each.facts["data"]["sha256"] for each in production.Artefact(churn).versions()]
    for call in (production.update, production.plan_update):
        with pytest.raises(EngramError, match=r"in version 2: .* roll back to version 1 first"):
            call(churn, new)
    production.rollback(churn)
    result = production.update(churn, new, force="anew", settings={"passes": 1})
    assert production.Artefact(churn).version(result.version).facts["data"]["sha256"] == digests[1]


def test_what_is_given_again_with_new_rows_is_examined_once(churn):
    """An export of all customers so far: its old rows are no further evidence."""
    old, new = week(2, 300), week(3, 300)
    production.update(churn, old, force="to have two", settings={"passes": 1})
    both = {name: [*old[name], *new[name]] for name in old}
    result = production.update(churn, both, force="to have three", settings={"passes": 1})
    exam = Memory.load(churn / "versions" / "0003" / "exam.safetensors")
    rows = exam.read(range(len(exam))).batch
    inputs = torch.cat([rows["numbers"], rows["codes"]], 1)
    assert len(inputs.unique(dim=0)) > 0.99 * len(exam)
    facts = [each.facts["exam"] for each in production.Artefact(churn).versions()]
    assert result.notes == [f"{facts[1]} examples are in an exam of the past: not asked twice."]
    counted = result.report["contradiction"]
    assert counted["new"] <= 300
    assert facts[2] < 100


def test_a_rollback_to_what_never_answered_is_refused(churn):
    with pytest.raises(EngramError, match="is the first"):
        production.rollback(churn)
    production.update(churn, week(2, 1500, shuffled=True))
    with pytest.raises(EngramError, match="Version 2 has never answered"):
        production.rollback(churn, to=2)
    with pytest.raises(EngramError, match="Version 1 answers already"):
        production.rollback(churn, to=1)
    with pytest.raises(EngramError, match="There is no version 7; there are 1, 2"):
        production.rollback(churn, to=7)


def test_two_updates_at_once_are_refused(churn):
    with production.Artefact(churn).lock():
        for call in (
            lambda: production.update(churn, week(2, 30)),
            lambda: production.rollback(churn),
            lambda: production.erase(churn, where={"customer": "7"}),
        ):
            with pytest.raises(production.LockedError, match="changed by another process"):
                call()
    assert engram.load(churn).version == 1


def test_a_dry_run_writes_nothing(churn):
    before = contents(churn)
    plan = production.plan_update(churn, week(2, 300, business=True))
    assert plan.examples + plan.exam == 300
    assert plan.new_classes == ["upgrade"]
    assert plan.steps == 3 * -(-plan.examples // 32)
    assert contents(churn) == before


@pytest.mark.parametrize("method", ["mega-i", "a-gem", "gem", "er", "van"])
def test_the_other_rules_train_too(churn, method):
    result = production.update(churn, week(2, 200), settings={"method": method, "passes": 1})
    facts = production.Artefact(churn).version(result.version).facts
    assert facts["training"]["method"] == method


def test_a_loop_of_ones_own_has_the_memory(churn):
    seen = []

    def loop(training):
        optimizer = torch.optim.SGD(training.network.parameters(), lr=0.01)
        for inputs, targets in training.batches():
            past, answers = training.reference(16)
            seen.append((len(inputs), len(past)))
            optimizer.zero_grad()
            loss = training.loss(training.network(inputs), targets)
            (loss + training.loss(training.network(past), answers)).backward()
            optimizer.step()

    result = production.update(churn, week(2, 1500), loop=loop)
    assert result.verdict == "accepted"
    assert set(seen) >= {(32, 16)}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"memory": 5}, "memory is 2,000 since the model was first trained"),
        ({"target": "plan"}, "fixed when a model is first trained"),
        ({"passes": "many"}, "passes must be a whole number"),
    ],
)
def test_settings_that_cannot_change_are_refused(churn, settings, sentence):
    with pytest.raises(EngramError, match=sentence):
        production.update(churn, week(2, 30), settings=settings)


@pytest.mark.parametrize("name", ["version.json", "preprocessing.json", "network.json"])
def test_a_damaged_file_is_refused_by_name(churn, name):
    path = churn / "versions" / "0001" / name
    path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(EngramError, match=f"{name}' is damaged"):
        engram.load(churn)


def test_damaged_weights_are_refused(churn):
    path = churn / "versions" / "0001" / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(EngramError, match="damaged: its checksum does not match"):
        engram.load(churn)


def test_what_is_no_artefact_is_refused(tmp_path):
    with pytest.raises(EngramError, match="is no artefact"):
        engram.load(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(EngramError, match="is there already, and is no artefact"):
        production.train(week(1, 30), tmp_path / "other", settings={"target": "left"})


def test_a_second_training_into_an_artefact_is_refused(churn):
    with pytest.raises(EngramError, match="`engram update` goes on from them"):
        production.train(week(1, 30), churn, settings={"target": "left"})


def test_nothing_of_a_report_is_markup(churn):
    columns = week(2, 300)
    columns["region"] = ["<script>alert(1)</script>"] * 300
    production.update(churn, columns, schema="extend", period="<b>week</b>", slices=["region"])
    page = (churn / "versions" / "0002" / "report.html").read_text()
    assert "<script>" not in page
    assert "<b>week" not in page
    assert "&lt;b&gt;week" in page
    whole = production.history_page(churn)
    assert "<b>week" not in whole
    json.dumps(production.history(churn))


@pytest.mark.parametrize(
    ("gate", "slices", "sentence"),
    [
        ({}, ["gone"], "called 'gone' to slice by; there are region, plan, customer, left"),
        ({}, ["usage"], "'usage' is a column of numbers"),
        ({"slices": {"regoin": {"max_drop": 0.1}}}, [], "called 'regoin' to slice by"),
    ],
)
def test_slices_that_there_are_not_are_refused_before_anything_is_trained(
    churn, gate, slices, sentence
):
    steps = []
    asked = {"gate": Gate.from_json(gate), "slices": slices}
    with pytest.raises(EngramError, match=sentence):
        production.update(churn, week(2, 30), listener=lambda *done: steps.append(done), **asked)
    with pytest.raises(EngramError, match=sentence):
        production.plan_update(churn, week(2, 30), **asked)
    assert not steps
    assert [each["version"] for each in production.history(churn)] == [1]


def test_what_the_gate_limits_is_examined_unasked_and_what_it_cannot_find_is_said(churn):
    gate = Gate.from_json(
        {
            "slices": {"region=north": {"min_gain": 0.5}, "region=mars": {"max_drop": 0.1}},
            "periods": {"week 1": {"max_drop": 0.3}},
        }
    )
    report = production.update(churn, week(2, 600), gate=gate).report
    parts = {(part["what"], part["name"]): part for part in report["parts"]}
    assert parts["new slice", "region=north"]["decision"] == "rejected"
    assert parts["slice", "region=south"]["decision"]
    assert ("new slice", "region=south") not in parts
    assert any(
        "The gate limits week 1, region=mars, of which the exam has no example" in note
        for note in report["notes"]
    )
