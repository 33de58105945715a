"""One's own loop and the laboratory take the same steps, method by method, in float64.

The same stream, the same draws, the same network: the weights are compared after each of twenty
steps, four in each of five tasks (GDumb's, whose steps are on its memory, when a task ends). Draws
are the same where each reference batch is all that is remembered, and where one's own loop is given
those that the laboratory has planned.
"""

import itertools

import pytest
import torch
from torch import nn

from engram import Learner
from engram.lab.benchmarks import Examples, Stream
from engram.lab.engine import Batch
from engram.lab.methods import FinishedTask, Setup, method_entry
from engram.lab.networks import MLP
from engram.lab.plan import generator
from engram.memory import ClassRing, ClassSample, Fifo, Memory, Reservoir, Sample
from engram.meta import MER
from engram.objectives import DER, ERACE, LwF
from engram.penalties import EWC, MAS, PI, RWALK
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal

pytestmark = pytest.mark.numerical

SIZES = (4, 6, 3)
TASKS, STEPS, BATCH, RATE = 5, 4, 3, 0.1
SEED = 5


class Noise(Stream):
    """Tasks of noise, whose inputs are stored as the network sees them."""

    most_examples = 1_000
    classes = classes_per_task = SIZES[-1]
    features = SIZES[0]

    def __init__(self):
        super().__init__([SEED], TASKS, STEPS * BATCH)
        source = torch.Generator().manual_seed(7)
        self.data = [
            Examples(
                torch.randn(1, self.examples, self.features, generator=source, dtype=torch.float64),
                torch.randint(self.classes, (1, self.examples), generator=source),
            )
            for _ in range(TASKS)
        ]

    def training_examples(self, task):
        return self.data[task]

    def joint_examples(self, part):
        raise NotImplementedError

    def test(self, task):
        raise NotImplementedError

    def network(self):
        return MLP(SIZES)

    def normalise(self, inputs):
        return inputs


class Perceptron(nn.Module):
    """The laboratory's network as a module, from its flat weights."""

    def __init__(self, flat):
        super().__init__()
        shapes = [
            shape
            for width, outputs in itertools.pairwise(SIZES)
            for shape in ((width, outputs), (outputs,))
        ]
        parts = flat.split([torch.Size(shape).numel() for shape in shapes])
        self.weights = nn.ParameterList(
            part.view(shape).clone() for part, shape in zip(parts, shapes, strict=True)
        )

    def forward(self, inputs):
        hidden = inputs
        for layer in range(len(SIZES) - 1):
            matrix, bias = self.weights[2 * layer], self.weights[2 * layer + 1]
            hidden = (hidden.relu() if layer else hidden) @ matrix + bias
        return hidden

    def flat(self):
        return torch.cat([each.detach().flatten() for each in self.weights])


RULES = {
    "er": Equal(),
    "a-gem": AGEM(),
    "gem": GEM(),
    "mega-i": MEGA1(1e-3),
    "mega-ii": MEGA2(),
}
PENALTIES = {
    "ewc": (EWC, {"strength": 0.5, "refresh_interval": 2}),
    "pi": (PI, {"strength": 0.02}),
    "mas": (MAS, {"strength": 1.0}),
    "rwalk": (RWALK, {"strength": 0.5, "refresh_interval": 2}),
}
TEXTBOOK = {"ewc": "kirkpatrick", "pi": "zenke", "mas": "aljundi", "rwalk": "chaudhry"}
POLICIES = {
    "ring": ClassRing(2),
    "sample": ClassSample(2),
    "reservoir": Reservoir(2 * SIZES[-1] * TASKS),
    "fifo": Fifo(2 * SIZES[-1] * TASKS),
}
CASES = [
    ("van", {}, lambda: {"rule": Current()}),
    *(
        (
            name,
            {"memory_per_class": 2, "memory": kind},
            lambda rule=rule, policy=policy: {"rule": rule, "memory": Memory(policy, seed=SEED)},
        )
        for name, rule in RULES.items()
        for kind, policy in POLICIES.items()
    ),
    *(
        (
            name,
            {"memory_per_class": 2, "memory": kind, **options},
            lambda objective=objective, options=options, policy=policy: {
                "rule": Equal(),
                "memory": Memory(policy, seed=SEED),
                "loss": objective(**options),
            },
        )
        for name, objective, options in (
            ("er-ace", ERACE, {}),
            ("derpp", DER, {"alpha": 0.7, "beta": 0.4}),
        )
        for kind, policy in POLICIES.items()
    ),
    (
        "der",
        {"memory_per_class": 2, "memory": "fifo", "alpha": 0.7},
        lambda: {"rule": Equal(), "memory": Memory(POLICIES["fifo"]), "loss": DER(0.7, 0)},
    ),
    ("lwf", {"strength": 1.5, "temperature": 3.0}, lambda: {"loss": LwF(1.5, 3.0)}),
    *(
        (
            name,
            {**options, "formula": formula},
            lambda kind=kind, options=options, formula=formula: {
                "penalty": kind(**options, formula=formula)
            },
        )
        for name, (kind, options) in PENALTIES.items()
        for formula in ("tables", TEXTBOOK[name])
    ),
]


def case_name(value):
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


class SameDraws(Memory):
    """A memory whose samples are those that the laboratory has planned for the step."""

    method = None
    names = ("inputs", "labels")

    def begin(self, step):
        found = self.method.bank.read(step, *self.names)
        self.coming = []
        if found is not None:
            columns, weights, groups = found
            if weights is None:
                weights = torch.ones(columns[1].shape)
            parts = (each[0].chunk(groups) for each in (*columns, weights))
            for *part, counts in zip(*parts, strict=True):
                self.coming.append(tuple(column[counts > 0] for column in part))

    def references(self, *_, **__):
        return (self.coming.pop(0), None, None) if self.coming else None

    def sample(self, *_, **__):
        return {
            task: Sample(batch, None, None, [], None)
            for task, batch in enumerate(self.coming)
            if len(batch[0])
        }


class SameSingles(Memory):
    """A memory whose draws with replacement are those that the laboratory's MER has made."""

    def __init__(self, method):
        super().__init__(Reservoir(4), seed=SEED)
        self.coming, drawn = [], method.memory.drawn

        def recorded(rows):
            found = drawn(rows)
            self.coming.append(found)
            return found

        method.memory.drawn = recorded

    def draw_again(self, count):
        found = self.coming.pop(0)
        assert count == len(found)
        if not found:
            return None
        inputs, labels = (
            torch.cat([each[0] for each in column])
            for column in zip(*((one.inputs, one.labels) for one in found), strict=True)
        )
        return Sample((inputs, labels), None, None, [], None)


@pytest.mark.parametrize("algorithm", ["one-batch", "batches"])
def test_mer_takes_the_same_steps_in_both_worlds(algorithm):
    options = {"algorithm": algorithm, "gamma": 0.3, "beta": 0.2, "draws": 3, "batches": 2}
    take_twenty_steps(
        "mer",
        {**options, "memory_size": 4},
        lambda method: {"memory": SameSingles(method), "meta": MER(**options)},
    )


DRAWN = [
    (
        name,
        {"memory_per_class": 3, "memory": kind, "reference_batch": 4, **options},
        {"rule": rule} if loss is None else {"rule": rule, "loss": loss},
    )
    for kind in ("ring", "reservoir")
    for name, options, rule, loss in (
        *((name, {}, rule, None) for name, rule in RULES.items() if name != "gem"),
        ("gem", {"sampled": True, "reference_batch": 2}, GEM(sampled=True), None),
        ("er-ace", {}, Equal(), ERACE()),
        ("der", {"alpha": 0.7}, Equal(), DER(0.7, 0)),
        ("derpp", {"alpha": 0.7, "beta": 0.4}, Equal(), DER(0.7, 0.4)),
    )
]


@pytest.mark.parametrize(
    ("name", "settings", "parts"), DRAWN, ids=[f"{n}-{case_name(s)}" for n, s, _ in DRAWN]
)
def test_twenty_steps_on_the_same_draws_are_the_same_in_both_worlds(name, settings, parts):
    memory = SameDraws(POLICIES[settings["memory"]])
    if "loss" in parts and parts["loss"].columns:
        memory.names = ("inputs", "labels", "logits")
    take_twenty_steps(name, settings, {**parts, "memory": memory})


@pytest.mark.parametrize(
    ("name", "settings", "parts"), CASES, ids=[f"{n}-{case_name(s)}" for n, s, _ in CASES]
)
def test_twenty_steps_are_the_same_in_both_worlds(name, settings, parts):
    given = {"reference_batch": 1_000} if "memory" in settings else {}
    take_twenty_steps(name, {**given, **settings}, parts())


def take_twenty_steps(name, settings, parts):
    """Train in both worlds, and compare the weights after every step."""
    stream, entry = Noise(), method_entry(name)
    network = stream.network()
    source = torch.Generator().manual_seed(3)
    start = torch.randn(1, network.size, generator=source, dtype=torch.float64)
    given = {"learning_rate": RATE, "batch_size": BATCH, **settings}
    model = Perceptron(start[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    method = entry.build(Setup(network, start, stream.seeds, stream), entry.settings(**given))
    parts = parts(method) if callable(parts) else parts
    learner = Learner(model, optimizer, reference_batch=1_000, **parts)
    if isinstance(learner.memory, SameDraws):
        learner.memory.method = method
    for task in range(TASKS):
        examples = stream.train(task)
        staged = method.stage_examples(examples)
        method.begin_task(task, staged.labels)
        seen = []
        for step in range(STEPS):
            part = slice(step * BATCH, (step + 1) * BATCH)
            batch = Batch(staged.inputs[:, part], staged.labels[:, part])
            if isinstance(learner.memory, SameDraws):
                learner.memory.begin(step)
            seen.append((examples.inputs[0, part], examples.labels[0, part]))
            method.observe(step, batch.inputs, batch)
            learner.observe(*seen[-1], task=task)
            torch.testing.assert_close(
                method.parameters[0],
                model.flat(),
                rtol=1e-9,
                atol=1e-11,
                msg=lambda text, where=f"task {task}, step {step}": f"{where}: {text}",
            )
        method.end_task(task, FinishedTask(staged))
        if task < TASKS - 1:  # the laboratory holds nothing after the last task
            learner.end_task(seen)


@pytest.mark.parametrize(("kind", "policy"), POLICIES.items(), ids=POLICIES)
def test_gdumb_trains_the_same_network_on_the_same_memory_in_both_worlds(kind, policy):
    stream, entry, epochs, size = Noise(), method_entry("gdumb"), 2, 4
    network, start = stream.network(), stream.initialise(stream.network(), SEED).double()
    given = {"memory": kind, "memory_per_class": 2, "epochs": epochs, "memory_batch": size}
    settings = entry.settings(learning_rate=RATE, batch_size=BATCH, **given)
    method = entry.build(Setup(network, start.clone()[None], stream.seeds, stream), settings)
    memory = Memory(policy, seed=SEED)
    for task in range(TASKS):
        staged = method.stage_examples(stream.train(task))
        method.begin_task(task, staged.labels)
        for step in range(STEPS):
            part = slice(step * BATCH, (step + 1) * BATCH)
            batch = Batch(staged.inputs[:, part], staged.labels[:, part])
            method.observe(step, batch.inputs, batch)
            memory.add((batch.inputs[0].clone(), batch.labels[0].clone()), tasks=task)
        method.end_task(task, FinishedTask(staged))
        memory.end_task()
        model = Perceptron(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        steps = epochs * -(-len(memory) // size)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for epoch in range(epochs):
            order = generator(SEED, "gdumb", task, epoch).permutation(len(memory))
            for slots in torch.from_numpy(order).split(size):
                inputs, labels = memory.read(slots.numpy()).batch
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
                falling.step()
        torch.testing.assert_close(method.parameters[0], model.flat(), rtol=1e-9, atol=1e-11)
