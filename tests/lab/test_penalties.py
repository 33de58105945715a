"""EWC, PI, MAS and RWALK, step by step, against a slow reading of their formulas in float64."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engram.lab.benchmarks import Examples, Stream
from engram.lab.engine import Batch
from engram.lab.methods import FinishedTask, Setup, method_entry
from engram.lab.networks import MLP
from penalty_oracles import BATCH, INTERVAL, RATE, READINGS, SIZES

pytestmark = pytest.mark.numerical

# 13, 9 and 10 steps: several refreshes in each, steps left over, and last batches of 2, 1 and 3.
LENGTHS = (38, 25, 30)
ESTIMATES = ("fisher", "squares", "path_integral", "score", "total", "last")
PENALTIES = ("ewc", "pi", "mas", "rwalk")


class Tiny(Stream):
    """Three tasks of noise, made for this file; inputs are stored as the network sees them."""

    most_examples = 1_000
    classes = classes_per_task = SIZES[-1]
    features = SIZES[0]

    def __init__(self, runs=1, lengths=LENGTHS, dtype=torch.float64):
        super().__init__(range(runs), len(lengths), max(lengths))
        self.reads = []  # for each task learned, the examples read after its single pass
        source = torch.Generator().manual_seed(7)
        self.data = [
            Examples(
                torch.randn(runs, length, self.features, generator=source, dtype=dtype),
                torch.randint(self.classes, (runs, length), generator=source),
            )
            for length in lengths
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


def build(name, stream, **settings):
    entry = method_entry(name)
    dtype = stream.data[0].inputs.dtype
    source = torch.Generator().manual_seed(3)
    network = stream.network()
    start = torch.randn(len(stream.seeds), network.size, generator=source, dtype=dtype)
    given = {"learning_rate": RATE, "batch_size": BATCH} | settings
    return entry.build(Setup(network, start, stream.seeds, stream), entry.settings(**given))


def batches(examples):
    for start in range(0, examples.labels.shape[1], BATCH):
        part = slice(start, start + BATCH)
        yield Batch(examples.inputs[:, part], examples.labels[:, part])


def learn(method, stream, task):
    """Teach a task, one step for each item yielded, and end it."""
    examples = stream.train(task)
    method.begin_task(task, examples.labels)
    for step, batch in enumerate(batches(examples)):
        method.observe(step, batch.inputs, batch)
        yield step
    finished = FinishedTask(examples)
    method.end_task(task, finished)
    stream.reads.append(finished.reads)


def train(method, stream):
    """Teach every task, and return the weights after each step."""
    return [
        method.parameters.clone()
        for task in range(stream.tasks)
        for _ in learn(method, stream, task)
    ]


def settings_of(name, formula, strength):
    settings = {"formula": formula, "strength": strength}
    return settings | ({"refresh_interval": INTERVAL} if name in ("ewc", "rwalk") else {})


def close(ours, theirs, what):
    torch.testing.assert_close(
        ours, theirs, rtol=1e-8, atol=1e-10, msg=lambda text: f"{what}: {text}"
    )


@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_every_step_and_estimate_is_that_of_the_slow_reading(name, formula):
    reading, strength = READINGS[name, formula]
    stream = Tiny(runs=2)
    method = build(name, stream, **settings_of(name, formula, strength))
    slow = [reading(weights, strength, stream.tasks) for weights in method.parameters]
    tracked = [] if formula == "kirkpatrick" else [at for at in ESTIMATES if hasattr(slow[0], at)]
    assert all(hasattr(method, estimate) for estimate in tracked)
    for task in range(stream.tasks):
        examples = stream.data[task]
        for step in learn(method, stream, task):
            part = slice(step * BATCH, (step + 1) * BATCH)
            for run, one in enumerate(slow):
                one.learn(step, examples.inputs[run, part], examples.labels[run, part])
                where = f"run {run}, task {task}, step {step}"
                close(method.parameters[run], one.w, f"weights, {where}")
                for estimate in tracked:
                    ours, theirs = getattr(method, estimate)[run], getattr(one, estimate)
                    close(ours, theirs, f"{estimate}, {where}")
        for run, one in enumerate(slow):
            one.finish(examples.inputs[run], examples.labels[run])
            theirs = sum(importance for importance, _ in one.penalties)
            close(
                method.penalty_weight[run], 2 * strength * theirs, f"importance after task {task}"
            )


@pytest.mark.parametrize(("name", "formula"), READINGS)
def test_the_penalty_matters_from_the_second_task_on_and_not_before(name, formula):
    _, strength = READINGS[name, formula]
    trail = train(build(name, s := Tiny(), **settings_of(name, formula, strength)), s)
    free = train(build(name, s := Tiny(), **settings_of(name, formula, 0.0)), s)
    plain = train(build("van", s := Tiny()), s)
    steps = -(-LENGTHS[0] // BATCH)
    assert all(torch.equal(a, b) for a, b in zip(trail[:steps], plain, strict=False))
    assert all(torch.equal(a, b) for a, b in zip(free, plain, strict=True))
    away = (trail[-1] - plain[-1]).norm() / plain[-1].norm()
    assert away > 1e-2, "the strength of this test is too small to see anything"


def test_ewc_refreshes_in_every_nth_iteration_before_its_gradient_is_added():
    stream = Tiny()
    method = build("ewc", stream, refresh_interval=INTERVAL)
    squares, fishers = [], [method.fisher.clone()]
    for _ in learn(method, stream, 0):
        squares.append(method.gradient.square())
        fishers.append(method.fisher.clone())
    changed = [k for k in range(len(squares)) if not torch.equal(fishers[k], fishers[k + 1])]
    assert changed == [3, 7, 11]  # counted from 0
    first = 0.9 * sum(squares[0:3]) / 4  # three gradients, divided by four
    second = 0.1 * first + 0.9 * sum(squares[3:7]) / 4  # the new window weighs 0.9
    close(fishers[4], first, "the first window")
    close(fishers[8], second, "the second window")


@pytest.mark.parametrize("name", ["ewc", "rwalk"])
@pytest.mark.parametrize("runs", [1, 3])
def test_where_tasks_are_shorter_than_the_interval_nothing_is_held(name, runs):
    """As on Split CUB, where the interval is 50 and a task has 30 steps: the same bits as VAN."""
    short = {"lengths": (BATCH * 9, BATCH * 9, BATCH * 8 + 1), "dtype": torch.float32}
    trail = train(build(name, s := Tiny(runs, **short), refresh_interval=10, strength=1e4), s)
    plain = train(build("van", s := Tiny(runs, **short)), s)
    assert all(torch.equal(a, b) for a, b in zip(trail, plain, strict=True))
    # With an interval of one iteration less, the weights are held.
    held = train(build(name, s := Tiny(runs, **short), refresh_interval=9, strength=1.0), s)
    assert not torch.equal(held[-1], plain[-1])


@pytest.mark.parametrize(
    ("name", "formula", "reads"),
    [
        ("ewc", "tables", [0, 0, 0]),
        ("ewc", "kirkpatrick", [38, 25, 0]),
        ("pi", "tables", [0, 0, 0]),
        ("mas", "tables", [38, 25, 0]),
        ("mas", "aljundi", [38, 25, 0]),
        ("rwalk", "tables", [0, 0, 0]),
    ],
)
def test_a_finished_task_is_read_once_or_not_at_all_and_never_after_the_last(name, formula, reads):
    stream = Tiny()
    train(build(name, stream, formula=formula), stream)
    assert stream.reads == reads


@pytest.mark.parametrize("name", PENALTIES)
def test_the_last_task_leaves_importance_and_anchor_alone(name):
    stream = Tiny()
    method = build(name, stream)
    for task in range(stream.tasks):
        for _ in learn(method, stream, task):
            held = method.penalty_weight.clone(), method.anchor.clone()
    assert torch.equal(method.penalty_weight, held[0])
    assert torch.equal(method.anchor, held[1])


@pytest.mark.parametrize("name", PENALTIES)
def test_the_tables_settings_are_the_defaults(name):
    settings = method_entry(name).settings()
    assert settings.formula == "tables"
    assert settings.strength == {"ewc": 10, "pi": 0.1, "mas": 0.1, "rwalk": 1}[name]
    if name in ("ewc", "rwalk"):
        assert (settings.refresh_interval, settings.decay) == (10, 0.9)
    if name in ("pi", "rwalk"):
        assert settings.damping == 1e-3


class Passes(TorchDispatchMode):
    """Counts the operations that write a number for each weight of each run."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.names = shape, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        written = tree_leaves((found, args[:1] if name.endswith("_") else ()))
        if any(isinstance(each, torch.Tensor) and each.shape == self.shape for each in written):
            self.names.append(name)
        return found


@pytest.mark.parametrize(
    ("name", "most", "refreshing"), [("mas", 3, 3), ("ewc", 4, 7), ("pi", 4, 4), ("rwalk", 5, 15)]
)
def test_a_step_of_stacked_runs_passes_over_their_weights_a_few_times(name, most, refreshing):
    # By plain operations: those for lists cut a large tensor in parts too few for a GPU.
    stream = Tiny(runs=2)
    settings = {"refresh_interval": 4} if name in ("ewc", "rwalk") else {}
    method = build(name, stream, **settings)
    for _ in learn(method, stream, 0):
        pass
    method.begin_task(1, stream.data[1].labels)
    counts = []
    for step, batch in enumerate(batches(stream.data[1])):
        with Passes(method.parameters.shape) as passes:
            method.observe(step, batch.inputs, batch)
        assert not [each for each in passes.names if each.startswith("_foreach")]
        counts.append(len(passes.names))
    assert counts[:4] == [most, most, most, refreshing], passes.names
