"""iCaRL: herding, exemplars and their budget, distillation, answers by the nearest mean."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div

from engram.errors import EngramError
from engram.lab.benchmarks import Examples
from engram.lab.engine import Batch
from engram.lab.methods import FinishedTask, Setup, method_entry
from engram.lab.methods.icarl import IcarlSettings, choose, distillation, herd, one_of_each
from engram.lab.networks import MLP
from engram.lab.protocol import run, specify

pytestmark = pytest.mark.numerical

RATE, CLASSES, FEATURES = 0.1, 3, 4


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.manual_seed(seed))


def build(seeds=(0,), tasks=4, **settings):
    """Return iCaRL in float64 on a small network, batches of two."""
    network = MLP((FEATURES, 5, CLASSES))
    start = torch.stack([random(network.size, seed=seed) for seed in seeds])
    stream = SimpleNamespace(
        tasks=tasks,
        classes=CLASSES,
        classes_per_task=CLASSES,
        normalise=lambda inputs: inputs.clone(),
        batch=lambda inputs, labels: Batch(inputs.clone(), labels),
    )
    chosen = IcarlSettings(learning_rate=RATE, batch_size=2, **settings)
    return method_entry("icarl").build(Setup(network, start, seeds, stream), chosen)


def task_of(labels, seed):
    """Return examples with these labels, [R, N], a run's inputs being its own."""
    labels = torch.tensor(labels)
    return Examples(random(*labels.shape, FEATURES, seed=seed), labels)


def learn(method, task, examples, steps=None):
    method.begin_task(task, examples.labels)
    go_on(method, examples, range(steps or -(-examples.labels.shape[1] // 2)))


def go_on(method, examples, steps):
    for step in steps:
        part = slice(2 * step, 2 * step + 2)
        inputs, labels = examples.inputs[:, part], examples.labels[:, part]
        method.observe(step, inputs, Batch(inputs, labels))


def outputs_of(method, run_, inputs):
    return method.network.predict(method.parameters[run_ : run_ + 1], inputs, None)[0]


def greedy(outputs, count):
    """Herding as the paper words it, every candidate's running mean computed anew."""
    chosen = []
    for _ in range(count):
        mean = outputs.mean(0)
        left = [i for i in range(len(outputs)) if i not in chosen]
        running = [outputs[[*chosen, i]].mean(0) for i in left]
        chosen.append(left[int(np.argmin([np.linalg.norm(mean - r) for r in running]))])
    return chosen


# Two runs of unequal classes: the first has no class 2, the second one example of class 0.
UNEQUAL = [[0, 1, 0, 1, 0, 1, 0, 1, 0, 1], [1, 2, 1, 2, 0, 2, 2, 1, 1, 2]]


def test_herding_is_the_greedy_choice():
    outputs, present = random(2, 3, 12, 5), torch.ones(2, 3, 12, dtype=torch.bool)
    present[1, 2, 7:] = False
    found = herd(outputs, present, 7)
    for run_ in range(2):
        for group in range(3):
            mine = outputs[run_, group][present[run_, group]].numpy()
            assert found[run_, group].tolist() == greedy(mine, 7)


def test_two_alone_are_equally_far_from_their_mean_and_the_first_is_taken():
    """Rounding must not decide: a run would not be the same alone and stacked."""
    outputs = torch.randn(200, 2, 10, generator=torch.manual_seed(0)) + 3
    assert (herd(outputs, torch.ones(200, 2, dtype=torch.bool), 1) == 0).all()


def test_every_class_of_every_run_is_herded_alone():
    examples = task_of(UNEQUAL, seed=1)
    outputs = random(2, 10, 6, seed=2)
    chosen = choose(5, examples, outputs, CLASSES, 3)
    for run_ in range(2):
        held = chosen["tasks"][run_] >= 0
        found = list(zip(chosen["labels"][run_][held], chosen["ranks"][run_][held], strict=True))
        expected = []
        for label in range(CLASSES):
            mine = torch.where(examples.labels[run_] == label)[0]
            for rank, place in enumerate(greedy(outputs[run_, mine].numpy(), min(3, len(mine)))):
                expected.append((label, rank))
                row = held.nonzero()[len(expected) - 1, 0]
                assert torch.equal(chosen["inputs"][run_, row], examples.inputs[run_, mine[place]])
                assert torch.equal(chosen["outputs"][run_, row], outputs[run_, mine[place]])
        assert found == expected
        assert set(chosen["tasks"][run_].tolist()) <= {5, -1}


def test_the_budget_holds_at_every_moment_and_the_first_of_each_list_stay():
    budget = 14
    method = build(seeds=(0, 1), memory_size=budget)
    lists = torch.tensor([0, 0])
    before = None
    for task in range(4):
        examples = task_of(UNEQUAL, seed=task)
        learn(method, task, examples)
        assert method.exemplars is before
        finished = FinishedTask(examples)
        method.end_task(task, finished)
        assert finished.reads == 10
        lists += torch.tensor([2, 3])
        for run_ in range(2):
            quota = budget // int(lists[run_])
            held = {}
            for row in (method.exemplars["tasks"][run_] >= 0).nonzero().flatten():
                key = (
                    int(method.exemplars["tasks"][run_, row]),
                    int(method.exemplars["labels"][run_, row]),
                )
                assert int(method.exemplars["ranks"][run_, row]) == len(held.get(key, []))
                held.setdefault(key, []).append(method.exemplars["inputs"][run_, row])
            assert sum(map(len, held.values())) <= budget
            assert len(held) == lists[run_]
            for (of, label), mine in held.items():
                there = UNEQUAL[run_].count(label)
                assert len(mine) == min(there, quota)
                own = task_of(UNEQUAL, seed=of)
                rows = own.inputs[run_][own.labels[run_] == label]
                if of == task:  # what was herded just now
                    best = greedy(outputs_of(method, run_, rows).numpy(), len(mine))
                    assert torch.equal(torch.stack(mine), rows[best])
                else:  # the first of what there was
                    old = (before["tasks"][run_] == of) & (before["labels"][run_] == label)
                    assert torch.equal(torch.stack(mine), before["inputs"][run_][old][: len(mine)])
        before = method.exemplars


def test_the_default_budget_is_that_of_the_other_memories():
    assert build(tasks=4).budget == 25 * CLASSES * 4
    assert specify("permuted-mnist", "icarl").settings["learning_rate"] == 0.1


def test_a_budget_without_an_exemplar_for_each_class_is_refused_before_training():
    method = build(tasks=4, memory_size=11)
    with pytest.raises(EngramError, match=r"memory_size must be at least 12, .* not 11"):
        method.begin_task(0, torch.tensor([[0, 1, 2]]))


def trained(**settings):
    method = build(seeds=(0, 1), memory_size=16, **settings)
    for task in range(2):
        examples = task_of(UNEQUAL, seed=task)
        learn(method, task, examples)
        method.end_task(task, FinishedTask(examples))
    learn(method, 2, task_of(UNEQUAL, seed=2), steps=2)  # the weights have moved since
    return method


def distances_by_hand(method, run_, inputs, tasks):
    """Return the distance to the nearest of each class's means among these tasks."""
    asked = outputs_of(method, run_, inputs).numpy()
    nearest = np.full((len(inputs), CLASSES), np.inf)
    held = method.exemplars
    for task in tasks:
        for label in range(CLASSES):
            mine = (held["tasks"][run_] == task) & (held["labels"][run_] == label)
            if mine.any():
                mean = outputs_of(method, run_, held["inputs"][run_][mine]).numpy().mean(0)
                away = np.linalg.norm(asked - mean, axis=1)
                nearest[:, label] = np.minimum(nearest[:, label], away)
    return nearest


@pytest.mark.parametrize(("task_ids", "tasks"), [(True, [1]), (False, [0, 1])])
def test_answers_are_by_the_nearest_mean_at_the_present_weights(task_ids, tasks):
    method = trained(task_ids=task_ids)
    inputs = random(7, FEATURES, seed=9)
    found = method.predict(inputs, None, 1)
    for run_ in range(2):
        np.testing.assert_allclose(found[run_], -distances_by_hand(method, run_, inputs, tasks))
    assert torch.isneginf(found[0, :, 2]).all()  # the first run never saw class 2
    # The means move with the weights.
    go_on(method, task_of(UNEQUAL, seed=2), [2])
    again = method.predict(inputs, None, 1)
    np.testing.assert_allclose(again[1], -distances_by_hand(method, 1, inputs, tasks))


def test_the_network_itself_answers_for_what_has_no_exemplars():
    inputs = random(7, FEATURES, seed=9)
    for task_ids in (True, False):
        method = build(task_ids=task_ids)
        learn(method, 0, task_of(UNEQUAL[:1], seed=0))
        assert torch.equal(method.predict(inputs, None, 0)[0], outputs_of(method, 0, inputs))
    known, unknown = trained(task_ids=True), trained(task_ids=False)
    expected = outputs_of(known, 1, inputs)
    torch.testing.assert_close(known.predict(inputs, None, 2)[1], expected)
    # Without task ids it cannot matter which task the inputs are from.
    assert torch.equal(unknown.predict(inputs, None, 2), unknown.predict(inputs, None, 0))


def test_distillation_s_gradient_is_autograd_s():
    logits, targets = random(2, 6, 4).requires_grad_(), random(2, 6, 4, seed=1)
    weights = random(2, 6, seed=2).abs()
    batch = Batch(torch.empty(2, 6, 0), torch.zeros(2, 6, dtype=torch.int64), weights)
    divergence = kl_div(logits.log_softmax(-1), targets.softmax(-1), reduction="none").sum(-1)
    (divergence * weights).sum().backward()
    losses, gradient = distillation(logits.detach(), batch, targets)
    torch.testing.assert_close(losses[:, 0], (divergence * weights).sum(-1).detach())
    torch.testing.assert_close(gradient, logits.grad)


def test_a_step_goes_down_the_loss_that_is_promised():
    method = trained(distillation=0.7)
    held, run_, step = method.exemplars, 1, 2
    places, _ = one_of_each(held, method.seeds, 2, 5)
    drawn = places[run_, step]
    pairs = torch.stack([held["tasks"][run_, drawn], held["labels"][run_, drawn]], 1).tolist()
    assert sorted(pairs) == [[task, label] for task in (0, 1) for label in range(3)]
    examples = task_of(UNEQUAL, seed=2)
    batch = slice(2 * step, 2 * step + 2)
    flat = method.parameters[run_].clone().requires_grad_()
    one, bias, two, last = flat.split([20, 5, 15, 3])

    def logits(inputs):
        return (inputs @ one.view(4, 5) + bias).relu() @ two.view(5, 3) + last

    loss = cross_entropy(logits(examples.inputs[run_, batch]), examples.labels[run_, batch])
    for task in (0, 1):
        rows = drawn[held["tasks"][run_, drawn] == task]
        new = logits(held["inputs"][run_, rows]).log_softmax(-1)
        old = held["outputs"][run_, rows].softmax(-1)
        loss = loss + 0.7 * kl_div(new, old, reduction="batchmean")
    loss.backward()
    go_on(method, examples, [step])
    torch.testing.assert_close(method.parameters[run_], flat.detach() - RATE * flat.grad)


def test_old_outputs_are_those_of_the_end_of_the_last_task():
    method = build(seeds=(0, 1), memory_size=16)
    for task in range(2):
        examples = task_of(UNEQUAL, seed=task)
        learn(method, task, examples)
        method.end_task(task, FinishedTask(examples))
    for run_ in range(2):
        expected = outputs_of(method, run_, method.exemplars["inputs"][run_])
        torch.testing.assert_close(method.exemplars["outputs"][run_], expected)


def test_a_run_is_the_same_alone_or_stacked():
    together = trained()
    for run_ in range(2):
        alone = build(seeds=(run_,), memory_size=16)
        for task in range(3):
            examples = Examples(*(part[run_ : run_ + 1] for part in task_of(UNEQUAL, seed=task)))
            learn(alone, task, examples, steps=2 if task == 2 else None)
            if task < 2:
                alone.end_task(task, FinishedTask(examples))
        torch.testing.assert_close(alone.parameters[0], together.parameters[run_])


def test_a_run_saved_in_the_middle_of_a_task_goes_on_bit_for_bit():
    original, resumed = trained(), build(seeds=(0, 1), memory_size=16)
    resumed.load_state_dict(original.state_dict())
    examples, inputs = task_of(UNEQUAL, seed=2), random(7, FEATURES, seed=9)
    for method in (original, resumed):
        go_on(method, examples, range(2, 5))
        method.end_task(2, FinishedTask(examples))
        learn(method, 3, task_of(UNEQUAL, seed=3))
    assert torch.equal(original.parameters, resumed.parameters)
    assert torch.equal(original.predict(inputs, None, 0), resumed.predict(inputs, None, 0))


@pytest.mark.parametrize("task_ids", ["true", "false"])
def test_on_permuted_mnist(task_ids, few_mnist):
    few_mnist(200)
    overrides = {"task_ids": task_ids, "memory_size": "60"}
    spec = specify("permuted-mnist", "icarl", tasks=2, examples=105, overrides=overrides)
    for outcome in run(spec, [0, 1]):
        assert outcome.failure is None
        assert outcome.facts["reads_after_task"] == 210
        assert min(outcome.accuracy[1]) > 0.25
