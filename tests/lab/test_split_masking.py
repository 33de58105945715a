"""Every example is told apart among the outputs of its own task, against slices of the logits."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from split_worlds import AWA_COUNTS, awa_numbers, build, learn, start
from torch.nn import functional

from engram.lab import benchmarks
from engram.lab.benchmarks.split import class_shares
from engram.lab.engine import Batch, cross_entropy
from engram.lab.methods import names
from engram.lab.methods.icarl import distillation
from engram.lab.protocol import run, specify
from engram.lab.protocol.evaluation import accuracies

pytestmark = pytest.mark.numerical

# Four tasks of one, two, two and three outputs, in no order; output 3 is nobody's.
TASKS = [[5], [0, 7], [4, 2], [8, 1, 6]]
CLASSES = 9

SMALL = {"memory_size": 40, "draws": 2}  # where a method has them


def accuracy(method, stream, task):
    """The share of a task's test images that is answered rightly, in each run."""
    return accuracies(method, stream, [task])[:, 0]


def mixed(groups=1, weighted=False):
    """Return logits that ask for gradients and a batch of 12 of all tasks, in two runs."""
    source = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(2, 12, CLASSES, generator=source, dtype=torch.float64)
    labels = torch.tensor([5, 0, 7, 2, 4, 8, 1, 6, 0, 5, 2, 8])
    labels = torch.stack([labels, labels.flip(0)])
    weights = torch.rand(2, 12, generator=source, dtype=torch.float64) if weighted else None
    outputs = torch.zeros(2, 12, CLASSES, dtype=torch.bool)
    for place in np.ndindex(2, 12):
        outputs[place][task_of(labels[place].item())] = True
    batch = Batch(torch.empty(2, 12, 0), labels, weights, groups, outputs)
    return logits.requires_grad_(), batch


def task_of(label):
    (mine,) = (task for task in TASKS if label in task)
    return mine


def sliced_entropy(logits, label, mine):
    """The cross-entropy of one example among the outputs of its task."""
    return functional.cross_entropy(logits[mine], torch.tensor(mine.index(label)))


def sliced(logits, batch, example):
    """The mean or weighted sum of what ``example`` says of each, [runs, groups]."""
    every = [
        example(place, logits[place], task_of(batch.labels[place].item()))
        for place in np.ndindex(2, 12)
    ]
    every = torch.stack(every).view(2, 12)
    parts = every if batch.weights is None else every * batch.weights
    parts = parts.view(2, batch.groups, -1)
    return parts.mean(-1) if batch.weights is None else parts.sum(-1)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_is_that_of_the_task_s_own_logits(groups, weighted):
    logits, batch = mixed(groups, weighted)
    wanted = sliced(
        logits, batch, lambda at, mine, task: sliced_entropy(mine, batch.labels[at].item(), task)
    )
    (gradient,) = torch.autograd.grad(wanted.sum(), logits)
    losses, at_logits = cross_entropy(logits.detach(), batch)
    torch.testing.assert_close(losses, wanted.detach())
    torch.testing.assert_close(at_logits, gradient)
    assert not at_logits[~batch.outputs].any()


def test_a_mask_of_everything_is_no_mask():
    logits, batch = mixed()
    whole = batch._replace(outputs=torch.ones_like(batch.outputs))
    for one, two in zip(
        cross_entropy(logits.detach(), whole),
        cross_entropy(logits.detach(), batch._replace(outputs=None)),
        strict=True,
    ):
        assert torch.equal(one, two)


def test_distillation_compares_the_task_s_own_outputs():
    logits, batch = mixed(weighted=True)
    targets = torch.randn(2, 12, CLASSES, dtype=torch.float64).mul_(3)

    def divergence(at, mine, task):
        new, old = (part[task].log_softmax(-1) for part in (mine, targets[at]))
        return functional.kl_div(new, old, reduction="sum", log_target=True)

    wanted = sliced(logits, batch, divergence)
    (gradient,) = torch.autograd.grad(wanted.sum(), logits)
    losses, at_logits = distillation(logits.detach(), batch, targets)
    torch.testing.assert_close(losses, wanted.detach())
    torch.testing.assert_close(at_logits, gradient)
    assert not at_logits[~batch.outputs].any()


def heads(method):
    """Return the weights and bias of every output of a perceptron, [4, outputs]."""
    *_, (weight, bias) = method.network.layers(method.parameters)
    return torch.cat([weight[0], bias[0]]).clone()


@pytest.mark.parametrize("name", [name for name in names() if name != "multi-task"])
@pytest.mark.usefixtures("split_worlds", "flat")
def test_no_method_moves_the_head_of_a_task_to_come(name):
    stream = build("split-cub", tasks=3, examples=20)
    fields = specify("split-cub", name).settings
    method = start(stream, "split-cub", name, **{k: SMALL[k] for k in SMALL if k in fields})
    before = heads(method)
    moved = torch.zeros(200, dtype=torch.bool)
    for task in range(2):
        for _ in learn(method, stream, task):
            pass
        if task == 0 or name != "prog-nn":  # whose second column has a head of its own
            moved |= stream.task_outputs(task)[0]
            changed = (heads(method) != before).any(0)
            assert torch.equal(changed, moved)


@pytest.mark.usefixtures("split_worlds", "flat")
def test_joint_training_tells_all_classes_apart_and_is_tested_by_task():
    stream = build("split-cub", tasks=3, examples=20)
    method = start(stream, "split-cub", "multi-task")
    before = heads(method)
    for part in range(3):
        examples = stream.train_jointly(part)
        for _, batch in learn(method, stream, part, examples):
            assert batch.outputs is None
    assert (heads(method) != before).any(0).all()
    for task in range(3):
        assert stream.task_outputs(task).sum() == 10
        assert accuracy(method, stream, task) == answered(method, stream, task)
    (outcome,) = run(specify("split-cub", "multi-task", tasks=2), [0])
    assert outcome.accuracy[0] == [None, None]
    assert None not in outcome.accuracy[1]


def answered(method, stream, task):
    """The share of a task's test images whose best logit among the task's own is the label's."""
    mine = stream.task_outputs(task)[0].nonzero().flatten()
    right = []
    for batch in stream.test(task):
        logits = method.predict(batch.inputs, None, task)[0][:, mine]
        right.append(mine[logits.argmax(-1)] == batch.labels[0])
    return torch.cat(right).double().mean()


@pytest.mark.usefixtures("split_worlds")
@pytest.mark.parametrize("name", ["split-cifar", "split-cub"])
def test_an_answer_is_never_outside_the_task(name):
    stream = build(name)

    def predict(inputs, columns, task):  # noqa: ARG001
        logits = torch.zeros(*inputs.shape[:2], stream.classes)
        best = stream.task_outputs(task)[0].nonzero()[1]  # an answer of the task's own
        logits[:, :, best] = 1
        return logits.masked_fill(~stream.task_outputs(task).unsqueeze(1), 5)

    answer = stream.task_outputs(3)[0].nonzero()[1]
    labels = torch.cat([batch.labels[0] for batch in stream.test(3)])
    found = accuracy(SimpleNamespace(predict=predict, task_blind=False), stream, 3)
    assert found == (labels == answer).double().mean() > 0


@pytest.mark.usefixtures("split_worlds")
def test_awa_s_accuracy_is_the_mean_over_classes():
    stream = build("split-awa")
    labels = torch.cat([batch.labels[0] for batch in stream.test(1)])
    numbers = torch.arange(len(labels))
    first, second, third, *_ = labels.unique().tolist()
    assert len({AWA_COUNTS[label - 50] for label in labels.unique().tolist()}) > 1
    # All of the first class are right, one of the second, none of the third, all of the others.
    wrong = (labels == third) | ((labels == second) & (numbers != numbers[labels == second][0]))
    given = labels.where(~wrong, first)

    def predict(inputs, columns, task):  # noqa: ARG001
        return functional.one_hot(given, stream.classes).float().unsqueeze(0)

    found = accuracy(SimpleNamespace(predict=predict, task_blind=False), stream, 1)
    share = 1 / len(awa_numbers(second - 50)[1])
    torch.testing.assert_close(found, torch.tensor([(3 + share) / 5], dtype=torch.float64))


def test_all_right_is_one_and_not_a_rounding_more():
    """A store takes fractions alone."""
    source = np.random.default_rng(0)
    for _ in range(100):
        labels = np.repeat(np.arange(5), source.integers(3, 200, 5))
        given = torch.from_numpy(labels)[None]
        batch = benchmarks.TestBatch(
            given, given, weights=torch.from_numpy(class_shares(labels))[None]
        )
        served = [(batch, {0: len(labels)})]
        stream = SimpleNamespace(
            target=None, task_outputs=lambda _: None, tests=lambda _, s=served: s
        )
        knowing = SimpleNamespace(predict=lambda right, *_: functional.one_hot(right))
        knowing.task_blind = True
        assert 1 - 1e-12 < accuracy(knowing, stream, 0) <= 1


@pytest.mark.usefixtures("split_worlds", "flat")
@pytest.mark.parametrize("name", ["split-cub", "split-awa"])
def test_mas_measures_the_task_s_own_logits(name):
    stream = build(name, tasks=3, examples=25)
    method = start(stream, name, "mas")
    examples = stream.train(0)
    for _ in learn(method, stream, 0, benchmarks.Examples(*(part.clone() for part in examples))):
        pass
    mine = stream.task_outputs(0)[0]
    total = torch.zeros_like(method.parameters)
    inputs = stream.normalise(examples.inputs)[0]
    for part in inputs.split(10):  # 10, 10 and 5
        flat = method.parameters[0].clone().requires_grad_()
        (first, shift), (second, other) = method.network.layers(flat[None])
        logits = ((part @ first[0] + shift[0]).relu() @ second[0] + other[0])[:, mine]
        total += torch.autograd.grad(logits.square().sum(), flat)[0].abs()
    torch.testing.assert_close(method.total, total / 25)
