"""One's own loop and the laboratory take the same steps, method by method, in float64.

The same stream, the same draws (each reference batch is all that is remembered), the same network:
the weights are compared after each of twenty steps, four in each of five tasks.
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
from engram.memory import ClassRing, ClassSample, Fifo, Memory, Reservoir
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
        if name != "gem" or kind in ("ring", "sample")
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


@pytest.mark.parametrize(
    ("name", "settings", "parts"), CASES, ids=[f"{n}-{case_name(s)}" for n, s, _ in CASES]
)
def test_twenty_steps_are_the_same_in_both_worlds(name, settings, parts):
    stream, entry = Noise(), method_entry(name)
    network = stream.network()
    source = torch.Generator().manual_seed(3)
    start = torch.randn(1, network.size, generator=source, dtype=torch.float64)
    given = {"learning_rate": RATE, "batch_size": BATCH, **settings}
    model = Perceptron(start[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    learner = Learner(model, optimizer, reference_batch=1_000, **parts())
    if "memory" in settings:
        given["reference_batch"] = 1_000
    method = entry.build(Setup(network, start, stream.seeds, stream), entry.settings(**given))
    for task in range(TASKS):
        examples = stream.train(task)
        staged = method.stage_examples(examples)
        method.begin_task(task, staged.labels)
        seen = []
        for step in range(STEPS):
            part = slice(step * BATCH, (step + 1) * BATCH)
            batch = Batch(staged.inputs[:, part], staged.labels[:, part])
            method.observe(step, batch.inputs, batch)
            seen.append((examples.inputs[0, part], examples.labels[0, part]))
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
