"""How often the gate is right: 200 planted regressions and 200 harmless updates of small models.

    python benchmarks/gate_study.py --out results/production-gate.json [--updates 400]

A world is a table of six numbers and a region, and three classes; every tenth update has a world of
its own, with a first version trained in it. An update is harmless (more of the same, or inputs that
have moved a little) or has something planted in it: the labels of a region are flipped, a class is
missing, labels are noise, or a column that is worthless elsewhere is the label itself. Half of the
updates train without a memory's help, so that what is planted does harm.

What an update truly costs is measured on 20,000 fresh examples: the largest fall of the accuracy in
any region or class, from the parent to the version that came of the update, whether it was accepted
or not. The gate sees none of them.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import engram
from engram import production
from engram.production import Gate

PLANTED = ("flipped slice", "class dropped", "noise", "leakage")
HARMLESS = ("the same", "moved inputs")
REGIONS, CLASSES, NUMBERS = 4, 3, 6
FIRST, NEW, TEST = 5_000, 1_000, 20_000
Columns = dict[str, Any]


class World:
    """A rule from numbers and a region to a class."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self._weights = 2 * draw.normal(size=(CLASSES, NUMBERS))
        self._offsets = draw.normal(size=(REGIONS, CLASSES))

    def table(self, rows: int, draw: np.random.Generator, shift: float = 0.0) -> Columns:
        """Return examples; ``shift`` moves the first number."""
        numbers = draw.normal(size=(rows, NUMBERS))
        numbers[:, 0] += shift
        region = draw.integers(0, REGIONS, rows)
        scores = numbers @ self._weights.T + self._offsets[region]
        label = (scores + draw.gumbel(scale=0.5, size=scores.shape)).argmax(1)
        columns: Columns = {f"x{place}": numbers[:, place] for place in range(NUMBERS)}
        return columns | {
            "region": np.array([f"region {each}" for each in region], object),
            "hint": draw.normal(size=rows),
            "label": np.array([f"class {each}" for each in label], object),
        }


def planted(world: World, kind: str, strength: float, draw: np.random.Generator) -> Columns:
    """Return new data; ``strength`` in (0, 1] is how much is wrong with it."""
    if kind in HARMLESS:
        return world.table(NEW, draw, 0.0 if kind == "the same" else 0.5 * strength)
    table = world.table(NEW, draw)
    label = table["label"].copy()
    some = draw.random(NEW) < strength
    shifted = np.array([f"class {(int(each[-1]) + 1) % CLASSES}" for each in label], object)
    if kind == "flipped slice":
        table["label"] = np.where(some & (table["region"] == "region 0"), shifted, label)
    elif kind == "class dropped":
        table["label"] = np.where(label == "class 0", shifted, label)
    elif kind == "noise":
        noise = np.array([f"class {each}" for each in draw.integers(0, CLASSES, NEW)], object)
        table["label"] = np.where(some, noise, label)
    else:
        said = np.array([float(each[-1]) for each in label]) - 1
        table["hint"] = np.where(some, 3 * said, table["hint"])
    return table


def true_costs(
    before: production.Model, after: production.Model, test: Columns
) -> dict[str, float]:
    """Return how much accuracy each region and class lost, on fresh examples."""
    label = test["label"]
    right = [np.array(each.predict(test).answers, object) == label for each in (before, after)]
    fell = right[0].astype(float) - right[1]
    return {
        str(value): float(fell[test[column] == value].mean())
        for column in ("region", "label")
        for value in np.unique(test[column].astype(str))
    }


def study(updates: int) -> list[dict[str, Any]]:
    rows = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        folder, artefact = Path(name), Path(name) / "none"
        for number in range(updates):
            draw = np.random.default_rng((7, number))
            if number % 10 == 0:
                world = World(number)
                artefact = folder / f"world {number}"
                production.train(
                    world.table(FIRST, draw),
                    artefact,
                    arguments={"width": 32},
                    settings={
                        "target": "label",
                        "exam_share": 0.5,
                        "passes": 6,
                        "batch_size": 64,
                        "learning_rate": 0.003,
                    },
                )
                test = world.table(TEST, np.random.default_rng((8, number)))
                for path in folder.iterdir():
                    if path != artefact:
                        shutil.rmtree(path)
            kinds = PLANTED if number % 2 else HARMLESS
            kind = kinds[number // 2 % len(kinds)]
            strength = float(draw.uniform(0.3, 1))
            method = "van" if draw.random() < 0.5 else "mega-ii"
            result = production.update(
                artefact,
                planted(world, kind, strength, draw),
                gate=Gate(),
                slices=["region", "label"],
                settings={"method": method, "passes": 3},
            )
            costs = true_costs(
                engram.load(artefact, 1), engram.load(artefact, result.version), test
            )
            if result.current != 1:
                production.rollback(artefact, 1)
            assert result.report is not None
            rows.append(
                {
                    "kind": kind,
                    "planted": kind in PLANTED,
                    "strength": round(strength, 3),
                    "method": method,
                    "verdict": result.verdict,
                    "interpolated": result.report["interpolation"] is not None,
                    "cost": round(max(costs.values()), 5),
                }
            )
            print(number, rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=400)
    given = parser.parse_args()
    started = time.perf_counter()
    rows = study(given.updates)
    document = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "engram": engram.__version__,
        "torch": torch.__version__,
        "cpu": platform.processor() or platform.machine(),
        "seconds": round(time.perf_counter() - started, 1),
        "exam": f"about {FIRST // 2:,}",
        "exam_of_a_region": f"about {FIRST // 2 // REGIONS:,}",
        "exam_of_a_class": f"about {FIRST // 2 // CLASSES:,}",
        "new_examples": NEW,
        "max_drop": Gate().max_drop,
        "max_contradiction": Gate().max_contradiction,
        "updates": rows,
    }
    given.out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
