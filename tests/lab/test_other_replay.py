"""Newer uses of a memory against a slow reading by autograd, step by step in float64."""

import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cross_entropy, log_softmax, mse_loss, softmax

from engram.lab.benchmarks import Examples, Stream
from engram.lab.engine import Batch
from engram.lab.methods import FinishedTask, Setup, method_entry
from engram.lab.networks import MLP
from engram.lab.plan import generator

pytestmark = pytest.mark.numerical

SIZES = (4, 6, 4)
TASKS, STEPS, BATCH, RATE, KEPT = 3, 4, 3, 0.1, 2


class Noise(Stream):
    """Tasks of noise; ``split`` gives each task outputs of its own, of which there are six."""

    most_examples = 1_000
    features = SIZES[0]

    def __init__(self, runs=2, *, split=False):
        super().__init__(range(runs), TASKS, STEPS * BATCH)
        self.split = split
        self.classes = 2 * TASKS if split else SIZES[-1]
        self.classes_per_task = 2 if split else SIZES[-1]
        source = torch.Generator().manual_seed(7)
        self.data = []
        for task in range(TASKS):
            shape = (runs, self.examples)
            inputs = torch.randn(*shape, self.features, generator=source, dtype=torch.float64)
            labels = torch.randint(self.classes_per_task, shape, generator=source)
            self.data.append(Examples(inputs, labels + (2 * task if split else 0)))

    def training_examples(self, task):
        return self.data[task]

    def joint_examples(self, part):
        raise NotImplementedError

    def test(self, task):
        raise NotImplementedError

    def network(self):
        return MLP((*SIZES[:-1], self.classes))

    def normalise(self, inputs):
        return inputs

    def outputs(self, labels):
        if not self.split:
            return None
        places = torch.arange(self.classes)
        return places.div(2, rounding_mode="floor") == labels.unsqueeze(-1).div(
            2, rounding_mode="floor"
        )

    def task_outputs(self, task):
        if not self.split:
            return None
        places = torch.arange(self.classes)
        return (places.div(2, rounding_mode="floor") == task).expand(len(self.seeds), -1)


def logits_of(flat, inputs, classes):
    first, second = SIZES[0] * SIZES[1], SIZES[1] * classes
    weight, rest = flat[:first].view(SIZES[0], SIZES[1]), flat[first:]
    hidden = (inputs @ weight + rest[: SIZES[1]]).relu()
    rest = rest[SIZES[1] :]
    return hidden @ rest[:second].view(SIZES[1], classes) + rest[second:]


def gradient(loss, flat):
    at = flat.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(at), at)
    return found


def build(name, stream, **settings):
    entry, network = method_entry(name), stream.network()
    source = torch.Generator().manual_seed(3)
    start = torch.randn(len(stream.seeds), network.size, generator=source, dtype=torch.float64)
    given = {"learning_rate": RATE, "batch_size": BATCH, **settings}
    return entry.build(Setup(network, start, stream.seeds, stream), entry.settings(**given))


def walk(method, stream):
    """Teach every task; yield before and after each step: run by run what is compared."""
    for task in range(TASKS):
        staged = method.stage_examples(stream.train(task))
        method.begin_task(task, staged.labels)
        for step in range(STEPS):
            part = slice(step * BATCH, (step + 1) * BATCH)
            inputs, labels = staged.inputs[:, part], staged.labels[:, part]
            before = method.parameters.clone()
            batch = Batch(inputs, labels, outputs=stream.outputs(labels))
            mix = method.observe(step, inputs, batch)
            yield task, step, before, (inputs.clone(), labels.clone()), mix
        method.end_task(task, FinishedTask(staged))


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def masked(logits, mask):
    return logits.masked_fill(~mask, -math.inf)


@pytest.mark.parametrize("split", [False, True])
def test_er_ace_raises_the_current_classes_over_each_other_alone(split):
    """All that is remembered is read, so that there is no draw: a fifo of everything."""
    stream = Noise(split=split)
    method = build("er-ace", stream, memory="fifo", memory_per_class=100, reference_batch=1000)
    seen = [[] for _ in stream.seeds]
    for _, _, before, (inputs, labels), mix in walk(method, stream):
        for run, flat in enumerate(before):
            x, y = inputs[run], labels[run]
            own = stream.outputs(y)

            def current(at, x=x, y=y, own=own, run=run):
                logits = logits_of(at, x, stream.classes)
                logits = logits if own is None else masked(logits, own)
                if seen[run]:
                    here = torch.isin(torch.arange(stream.classes), y)
                    logits = masked(logits, here.expand_as(logits))
                return cross_entropy(logits, y)

            def memory(at, run=run):
                x, y = (torch.cat(each) for each in zip(*seen[run], strict=True))
                logits, own = logits_of(at, x, stream.classes), stream.outputs(y)
                return cross_entropy(logits if own is None else masked(logits, own), y)

            update = gradient(current, flat)
            close(mix.losses[run, 0], current(flat))
            if seen[run]:
                update = update + gradient(memory, flat)
                close(mix.losses[run, 1], memory(flat))
            close(method.parameters[run], flat - RATE * update)
            seen[run].append((x, y))


@pytest.mark.parametrize("name", ["der", "derpp"])
@pytest.mark.parametrize("split", [False, True])
def test_der_keeps_to_the_logits_that_were_given_when_an_example_was_learned(name, split):
    stream = Noise(split=split)
    options = {"alpha": 0.7} | ({"beta": 0.4} if name == "derpp" else {})
    beta = options.get("beta", 0.0)
    method = build(
        name, stream, memory="fifo", memory_per_class=100, reference_batch=1000, **options
    )
    seen = [[] for _ in stream.seeds]
    for _, _, before, (inputs, labels), mix in walk(method, stream):
        for run, flat in enumerate(before):
            x, y = inputs[run], labels[run]

            def entropy(at, x=x, y=y):
                logits, own = logits_of(at, x, stream.classes), stream.outputs(y)
                return cross_entropy(logits if own is None else masked(logits, own), y)

            def memory(at, run=run, entropy=entropy):
                x, y, z = (torch.cat(each) for each in zip(*seen[run], strict=True))
                logits, own = logits_of(at, x, stream.classes), stream.outputs(y)
                if own is None:
                    distance = mse_loss(logits, z)
                else:
                    pairs = zip(logits, z, own, strict=True)
                    distance = sum(mse_loss(f[o], g[o]) for f, g, o in pairs) / len(y)
                return 0.7 * distance + beta * entropy(at, x, y)

            update = gradient(entropy, flat)
            if seen[run]:
                update = update + gradient(memory, flat)
            close(method.parameters[run], flat - RATE * update)
            close(mix.losses[run, 0], entropy(flat))
            close(
                mix.weights[run], mix.weights.new_tensor([1.0, 0.7, beta][: mix.weights.shape[1]])
            )
            seen[run].append((x, y, logits_of(flat, x, stream.classes)))


def test_der_plus_plus_draws_twice_and_each_time_without_replacement():
    stream = Noise(runs=1)
    method = build("derpp", stream, memory="fifo", memory_per_class=100, reference_batch=4)
    differ = 0
    for _ in walk(method, stream):
        found = method.bank.read(STEPS - 1, "inputs")
        if found is None:
            continue
        (inputs,), _, groups = found
        assert groups == 2
        first, second = inputs[0].chunk(2)
        assert len(first.unique(dim=0)) == len(first) == len(second.unique(dim=0))
        differ += not torch.equal(first, second)
    assert differ > STEPS


@pytest.mark.parametrize("split", [False, True])
def test_lwf_keeps_to_what_the_network_answered_before_the_task(split):
    stream, strength, temperature = Noise(split=split), 1.7, 2.5
    method = build("lwf", stream, strength=strength, temperature=temperature)
    former = None
    for task, step, before, (inputs, labels), mix in walk(method, stream):
        if task and step == 0:
            former = before.clone()
        for run, flat in enumerate(before):
            x, y = inputs[run], labels[run]

            def entropy(at, x=x, y=y):
                logits, own = logits_of(at, x, stream.classes), stream.outputs(y)
                return cross_entropy(logits if own is None else masked(logits, own), y)

            def loss(at, x=x, run=run, task=task, former=former, entropy=entropy):
                total = entropy(at)
                if not task:
                    return total
                then = logits_of(former[run], x, stream.classes) / temperature
                now = logits_of(at, x, stream.classes) / temperature
                parts = [slice(2 * old, 2 * old + 2) for old in range(task)] if split else [...]
                for part in parts:
                    there = slice(None) if part is ... else part
                    answers = softmax(then[:, there], -1)
                    mine = log_softmax(now[:, there], -1)
                    total = total - strength * (answers * mine).sum(-1).mean()
                return total

            close(method.parameters[run], flat - RATE * gradient(loss, flat))
            close(mix.losses[run, 0], entropy(flat))


def test_gdumb_learns_from_its_memory_alone_and_anew_after_every_task():
    stream, epochs, size = Noise(), 3, 5
    method = build(
        "gdumb", stream, memory="fifo", memory_per_class=100, epochs=epochs, memory_batch=size
    )
    seen = [[] for _ in stream.seeds]
    start = method.parameters.clone()
    for task, step, before, (inputs, labels), _ in walk(method, stream):
        assert torch.equal(method.parameters, before), "nothing is learned while a task goes by"
        if task and step == 0:
            for run, seed in enumerate(stream.seeds):
                x, y = (torch.cat(each) for each in zip(*seen[run], strict=True))
                flat = stream.initialise(stream.network(), seed).double()
                taken, steps = 0, epochs * math.ceil(len(y) / size)
                for epoch in range(epochs):
                    order = generator(seed, "gdumb", task - 1, epoch).permutation(len(y))
                    for part in torch.from_numpy(order).split(size):

                        def loss(at, x=x[part], y=y[part]):
                            return cross_entropy(logits_of(at, x, stream.classes), y)

                        rate = RATE * (1 + math.cos(math.pi * taken / steps)) / 2
                        flat = flat - rate * gradient(loss, flat)
                        taken += 1
                close(before[run], flat)
        elif not task:
            assert torch.equal(before, start)
        for run in range(len(before)):
            seen[run].append((inputs[run], labels[run]))


NOTHING_MORE = {"alpha": 0.0, "average": 0.0}
"""Settings with which `recommended` has none of its ingredients."""
ALONE = [
    ("er", {}, {}),
    ("er-ace", {}, {"masked": True}),
    ("mega-i", {"epsilon": 0.3}, {"rule": "mega-i", "epsilon": 0.3}),
    ("mega-ii", {}, {"rule": "mega-ii"}),
    ("derpp", {"alpha": 0.7, "beta": 1.0}, {"alpha": 0.7}),
]


@pytest.mark.parametrize("memory", ["ring", "reservoir"])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(("name", "theirs", "ours"), ALONE)
def test_each_ingredient_of_recommended_is_a_method_of_its_own(name, theirs, ours, split, memory):
    common = {"memory": memory, "memory_per_class": 2, "reference_batch": 4}
    mine = build("recommended", Noise(split=split), **common, **NOTHING_MORE | ours)
    other = build(name, Noise(split=split), **common, **theirs)
    for _ in zip(walk(mine, Noise(split=split)), walk(other, Noise(split=split)), strict=True):
        close(mine.parameters, other.parameters)


@pytest.mark.parametrize("split", [False, True])
def test_recommended_takes_its_steps_on_one_batch_and_averages_what_is_left_of_them(split):
    """All that is remembered is read, so that there is no draw: a fifo of everything."""
    stream, alpha, decay = Noise(split=split), 0.7, 0.75
    method = build(
        "recommended",
        stream,
        memory="fifo",
        memory_per_class=100,
        reference_batch=1000,
        alpha=alpha,
        updates=3,
        average=decay,
    )
    seen, averages = [[] for _ in stream.seeds], [0.0 for _ in stream.seeds]
    for count, (_, _, before, (inputs, labels), _) in enumerate(walk(method, stream), 1):
        for run, flat in enumerate(before):
            x, y, at = inputs[run], labels[run], flat

            def entropy(at, x=x, y=y):
                logits, own = logits_of(at, x, stream.classes), stream.outputs(y)
                return cross_entropy(logits if own is None else masked(logits, own), y)

            def whole(at, run=run, entropy=entropy):
                if not seen[run]:
                    return entropy(at)
                x, y, z = (torch.cat(each) for each in zip(*seen[run], strict=True))
                far = (logits_of(at, x, stream.classes) - z).square()
                own = stream.outputs(y)
                shares = torch.ones_like(far) if own is None else own.to(far)
                distance = ((far * shares).sum(-1) / shares.sum(-1)).mean()
                return entropy(at) + entropy(at, x, y) + alpha * distance

            for _ in range(3):
                at = at - RATE * gradient(whole, at)
            close(method.parameters[run], at)
            share = max(1 - decay, 1 / count)
            averages[run] = averages[run] + share * (at - averages[run])
            close(method.evaluated[0][run], averages[run])
            seen[run].append((x, y, logits_of(flat, x, stream.classes)))
    inputs = stream.data[0].inputs[0]
    columns = torch.arange(stream.features).expand(len(stream.seeds), -1)
    expected = [logits_of(flat, inputs, stream.classes) for flat in averages]
    close(method.predict(inputs, columns, 0), torch.stack(expected))


def test_the_average_of_weights_changes_nothing_that_is_trained():
    given = {"memory_per_class": 2, "reference_batch": 4, "updates": 2}
    mine, other = (build("recommended", Noise(), average=each, **given) for each in (0.9, 0.0))
    for _ in zip(walk(mine, Noise()), walk(other, Noise()), strict=True):
        assert torch.equal(mine.parameters, other.parameters)
        assert torch.equal(mine.buffers, other.buffers)
    assert other.evaluated[0] is other.parameters
    assert not torch.equal(mine.evaluated[0], mine.parameters)
    own, none = mine.facts(), other.facts()
    assert own["state_bytes"] - none["state_bytes"] == 8 * own["parameters"]
    assert own["memory_bytes"] == none["memory_bytes"]


def test_each_of_several_updates_reads_draws_of_its_own():
    stream = Noise(runs=1)
    method = build("recommended", stream, memory="fifo", reference_batch=4, updates=3)
    differ = 0
    for _ in walk(method, stream):
        drawn = method.drawn(STEPS - 1, "logits")
        assert len(drawn) in (0, 3 * 2)
        for (one, _), (other, _) in pairwise(drawn):
            assert len(one.inputs[0].unique(dim=0)) == len(one.inputs[0])
            differ += not torch.equal(one.inputs, other.inputs)
    assert differ > 3 * STEPS
