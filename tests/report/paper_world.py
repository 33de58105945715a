"""A laboratory that knows the paper's four benchmarks, and rows as it would have made them."""

import json
from dataclasses import asdict, dataclass
from importlib import resources
from types import SimpleNamespace

import numpy as np

from engram.app.report import PaperDefaults
from engram.app.runs import Row, address
from engram.errors import EngramError

EXAMPLES = {"permuted-mnist": 55_000, "split-cifar": 2_500, "split-cub": 300, "split-awa": 1_000}
PAPER, _CLAIMS = (
    json.loads(resources.files("engram.app.paper").joinpath(name).read_text())
    for name in ("numbers.json", "claims.json")
)
CLAIMS = [*_CLAIMS["claims"]]


@dataclass(frozen=True)
class Spec:
    benchmark: str
    method: str
    tasks: int
    examples: int
    settings: dict
    split: str = "training"

    def description(self):
        return {**asdict(self), "numerics": [1, 1]}

    def identity(self):
        return {**self.description(), "data": "abc"}


PRESETS = {f"permuted-mnist-{n}": (20, n) for n in (200, 400, 600)}
PRESETS |= {f"many-permutations-{n}": (n, 200) for n in (30, 50, 70)}


def specify(benchmark, method, *, tasks=None, examples=None, overrides=None):
    if benchmark in PRESETS:
        tasks, examples = PRESETS[benchmark]
        benchmark, overrides = "permuted-mnist", {"memory_per_class": 6, **(overrides or {})}
    if benchmark not in EXAMPLES:
        raise EngramError(f"There is no benchmark {benchmark!r}.")
    settings = {"learning_rate": 0.1, **(overrides or {})}
    return Spec(benchmark, method, tasks or 17, examples or EXAMPLES[benchmark], settings)


def settings_help(*_):
    """What is usual and in no row: the precision."""
    return [SimpleNamespace(name="precision", value="tf32", help="how a GPU multiplies")]


DEFAULTS = PaperDefaults(specify)


def make_row(
    method="van",
    seed=0,
    benchmark="permuted-mnist",
    *,
    tasks=17,
    examples=None,
    final=None,
    device="cpu",
    seconds=2.0,
    facts=None,
    failure=None,
    command="engram run",
    split="training",
    data="abc",
    **settings,
):
    """A run with accuracies drawn for its method and seed, or ``final`` for every task at the end.

    Joint training (``multi-task``) has its last accuracies alone.
    """
    spec = Spec(
        benchmark,
        method,
        tasks,
        examples or EXAMPLES[benchmark],
        {"learning_rate": 0.1, **settings},
        split,
    )
    draws = np.random.default_rng([seed, *method.encode(), tasks])
    accuracy = draws.uniform(0.3, 0.95, (tasks, tasks)).round(4)
    if final is not None:
        accuracy[-1] = final
    joint = method == "multi-task"
    rows = [
        [
            float(accuracy[k, j]) if j <= k and (k == tasks - 1 or not joint) else None
            for j in range(tasks)
        ]
        for k in range(tasks)
    ]
    curve = [] if joint else np.sort(draws.uniform(0.1, 0.5, (tasks, 11)), 1).round(4).tolist()
    identity = json.loads(json.dumps({**spec.identity(), "data": data}))
    return Row.of(
        {
            "address": address(identity, seed),
            "seed": seed,
            "identity": identity,
            "outcome": {
                "accuracy": rows,
                "curve": curve,
                "facts": {"parameters": 1000, **(facts or {})},
                "failure": failure,
            },
            "device": device,
            "seconds": seconds + seed / 8,
            "created": "2026-01-02T03:04:05.000000Z",
            "versions": {"engram": "0.1.0"},
            "command": command,
        }
    )


def average_accuracy(row):
    """By the paper's definition, in percent."""
    return 100 * float(np.mean(row.outcome["accuracy"][-1]))


def forgetting(row):
    """By the paper's definition, in plain loops; None where nothing was learned before."""
    matrix = row.outcome["accuracy"]
    last, losses = len(matrix) - 1, []
    for task in range(last):
        seen = [matrix[k][task] for k in range(last) if matrix[k][task] is not None]
        if not seen:
            return None
        losses.append(max(seen) - matrix[last][task])
    return float(np.mean(losses))


def learning_area(row, batches=10):
    """Trapezoids under the mean learning curve up to a mini-batch; None without a curve."""
    if not row.outcome["curve"]:
        return None
    mean = np.mean(row.outcome["curve"], 0)
    if batches == 0:
        return float(mean[0])
    steps = [(mean[b] + mean[b + 1]) / 2 for b in range(batches)]
    return float(sum(steps) / batches)


MEASURES = {
    "average_accuracy": (average_accuracy, 2),
    "forgetting": (forgetting, 3),
    "lca_10": (learning_area, 3),
}


def told(rows, metric):
    """Mean ± population standard deviation as tables print it; of one seed the value alone."""
    measure, digits = MEASURES[metric]
    values = [
        value for row in rows if not row.outcome["failure"] and (value := measure(row)) is not None
    ]
    if not values:
        return "–"
    spread = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"
