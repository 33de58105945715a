"""Objectives in a learner: what is remembered beside an example, parts, states, refusals."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from engram import Learner
from engram.errors import EngramError
from engram.memory import ClassRing, IndexStorage, Memory, Reservoir
from engram.objectives import DER, ERACE, Answer, LwF, Objective
from engram.penalties import EWC
from engram.rules import MEGA2, Equal

pytestmark = pytest.mark.numerical

OBJECTIVES = {"DER": DER, "ERACE": ERACE, "LwF": LwF}


def network(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, classes)).double()


def batch(seed, count=6):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (count,), generator=generator)


def build(objective, memory=None, **options):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = Memory(Reservoir(30)) if memory is None else memory
    return Learner(model, optimizer, Equal(), memory, loss=objective, **options)


def learn(learner, tasks, steps=4):
    for task in tasks:
        for step in range(steps):
            learner.observe(*batch(100 * task + step), task=task)
        learner.end_task()


def weights(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_logits_remembered_are_those_of_the_step_that_learned_an_example():
    learner = build(DER(0.5, 0.5))
    then = {}
    for step in range(3):
        inputs, labels = batch(step)
        before = copy.deepcopy(learner.model)
        learner.observe(inputs, labels, ids=range(10 * step, 10 * step + 6))
        then |= {10 * step + i: before(inputs)[i] for i in range(6)}
    sample = learner.memory.sample(30)
    for number, logits in zip(sample.ids, sample.batch[2], strict=True):
        close(logits, then[number])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_parts_of_a_batch_make_the_step_of_the_whole(name):
    if name == "ERACE":  # whose classes are those of the part
        pytest.skip("the batch's classes are those of each part")
    whole, parts = build(OBJECTIVES[name]()), build(OBJECTIVES[name](), micro_batch=4)
    for task in range(2):
        for step in range(3):
            one, two = (each.observe(*batch(10 * task + step)) for each in (whole, parts))
            close(one.losses, two.losses)
            close(weights(whole.model), weights(parts.model))
        whole.end_task()
        parts.end_task()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_learner_goes_on_from_its_state_bit_for_bit(name):
    first = build(OBJECTIVES[name]())
    learn(first, [0, 1])
    saved = copy.deepcopy(first.state_dict())
    learn(first, [2])
    second = build(OBJECTIVES[name]())
    second.load_state_dict(saved)
    learn(second, [2])
    assert torch.equal(weights(first.model), weights(second.model))


def test_der_beside_another_rule_is_weighed_by_the_cross_entropy():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    learner = Learner(model, optimizer, MEGA2(), Memory(Reservoir(30)), loss=DER(0.7, 0.4))
    learner.observe(*batch(0))
    inputs, labels, logits = learner.memory.sample(30).batch
    before = copy.deepcopy(model)
    mix = learner.observe(*batch(1))
    close(mix.losses[1], cross_entropy(before(inputs), labels).detach())
    rows = []
    current = cross_entropy(before(batch(1)[0]), batch(1)[1])
    answered = before(inputs)
    past = 0.7 * mse_loss(answered, logits) + 0.4 * cross_entropy(answered, labels)
    for loss in (current, past):
        found = torch.autograd.grad(loss, list(before.parameters()))
        rows.append(torch.cat([each.flatten() for each in found]))
    close(weights(model), weights(before) - 0.1 * (mix.weights @ torch.stack(rows)))


def test_a_head_that_has_grown_is_compared_where_it_was():
    for objective in (DER(0.5, 0.5), LwF(1.0)):
        learner = build(objective)
        learn(learner, [0])
        old, new = learner.model[2], nn.Linear(7, 5).double()
        with torch.no_grad():
            new.weight[:3], new.bias[:3] = old.weight, old.bias
        learner.model[2] = new
        learner.optimizer = torch.optim.SGD(learner.model.parameters(), lr=0.1)
        if isinstance(objective, LwF):
            learner.observe(*batch(7), task=1)
        else:  # the memory's columns keep their width; the loss alone looks at both
            answered = learner.model(batch(7)[0])
            then = torch.zeros(6, 3, dtype=torch.float64)
            answers = [
                objective.remembered(learner.model, batch(7), None, {"logits": then}, draw)
                for draw in range(objective.draws)
            ]
            close(answers[0].loss, 0.5 * mse_loss(answered[:, :3], then))
            close(answers[1].loss, 0.5 * cross_entropy(answered, batch(7)[1]))


def test_batches_that_are_dicts_have_an_objective_of_ones_own():
    class Dark(Objective):
        columns = ("logits",)

        def current(self, model, batch, tasks, *, alone):  # noqa: ARG002
            logits = model(batch["x"])
            return Answer(cross_entropy(logits, batch["y"]), None, {"logits": logits.detach()})

        def remembered(self, model, batch, tasks, columns, draw):  # noqa: ARG002
            assert batch.keys() == {"x", "y"}
            return Answer(mse_loss(model(batch["x"]), columns["logits"]))

    learner = build(Dark(), Memory(ClassRing(2)))
    for task in range(2):
        inputs, labels = batch(task)
        learner.observe({"x": inputs, "y": labels}, task=task, labels=labels)
        learner.end_task()
    assert learner.memory.sample(3).batch["logits"].shape == (3, 3)
    with pytest.raises(EngramError, match="has a column 'logits'"):
        learner.observe({"x": inputs, "y": labels, "logits": labels}, task=2, labels=labels)


def test_a_penalty_beside_an_objective_goes_by_the_plain_loss():
    found = []
    for objective in (None, LwF(1.0, 2.0), ERACE()):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        penalty = EWC(1.0, formula="kirkpatrick")
        options = {} if objective is None else {"loss": objective}
        learner = Learner(model, optimizer, penalty=penalty, **options)
        learner.observe(*batch(0))
        learner.end_task([batch(0)])
        found.append(penalty.state_dict()["gathered"]["fisher"])
    for other in found[1:]:
        for ours, theirs in zip(other, found[0], strict=True):
            close(ours, theirs)


def test_what_does_not_fit_is_refused_and_changes_nothing():
    with pytest.raises(EngramError, match="alpha"):
        DER(-1)
    with pytest.raises(EngramError, match="temperature"):
        LwF(1.0, 0)
    with pytest.raises(EngramError, match="strength"):
        LwF(float("inf"))
    inputs, labels = batch(0)
    with pytest.raises(EngramError, match="memory of indices"):
        build(DER(), Memory(Reservoir(5), IndexStorage((inputs, labels))))
    learner = build(DER())
    with pytest.raises(EngramError, match=r"takes batches \(\*inputs, classes\)"):
        learner.observe({"x": inputs, "y": labels})
    learner.observe(inputs, labels)
    before = weights(learner.model)
    with pytest.raises(EngramError):
        learner.observe(inputs * torch.nan, labels)
    with pytest.raises(RuntimeError, match="dtype"):
        learner.observe(inputs.float(), labels)
    assert torch.equal(weights(learner.model), before)
    assert len(learner.memory) == 6
    with pytest.raises(EngramError, match="has no state"):
        ERACE().load_state_dict({"former": {}})
    with pytest.raises(EngramError, match="holds a former model"):
        LwF().load_state_dict({"other": 1})

    class Wrong(Objective):
        def current(self, model, batch, tasks, *, alone):  # noqa: ARG002
            return cross_entropy(model(batch[0]), batch[1])

    with pytest.raises(EngramError, match="Wrong must give an Answer"):
        build(Wrong()).observe(inputs, labels)
