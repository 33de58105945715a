"""Streams and specs of small folders and tables of somebody's own."""

from own_worlds import SIDE

from engram.lab.benchmarks import benchmark
from engram.lab.protocol import specify

USUAL = {"target": "bought", "time": "day", "period": "quarter"}


def folder_stream(folder, seeds=(0,), **settings):
    return built(f"folder:{folder}", seeds, {"size": SIDE, **settings})


def folder_spec(folder, method="mega-ii", **overrides):
    texts = {name: str(value) for name, value in {"size": SIDE, **overrides}.items()}
    return specify(f"folder:{folder}", method, overrides=texts)


def table_stream(path, seeds=(0,), **settings):
    return built(f"table:{path}", seeds, {**USUAL, **settings})


def table_spec(path, method="mega-ii", **overrides):
    texts = {name: str(value) for name, value in {**USUAL, **overrides}.items()}
    given = {name: text for name, text in texts.items() if text}
    return specify(f"table:{path}", method, overrides=given)


def built(name, seeds, settings):
    made = benchmark(name)
    chosen = made.settings(**settings)
    sized = made.sized(chosen)
    return made.build(seeds, sized.paper_tasks, sized.most_examples, settings=chosen)
