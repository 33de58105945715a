"""Specs, settings and streams: what can be run is specified, everything else is refused."""

import dataclasses

import torch
from fuzz_cases import attempt, generated, refused
from fuzz_junk import junk, maybe, mostly
from hypothesis import strategies as st

from engram.errors import EngramError
from engram.lab import benchmarks, protocol
from engram.lab.methods import method_entry
from engram.lab.settings import parse

BENCHMARKS = ["permuted-mnist"] * 6 + ["permuted-mnist-200", "many-permutations-30", "split-cub"]
BENCHMARKS += ["split-cifar", "folder:", "table:", "folder:/nowhere", "table:/nowhere.csv"]
BENCHMARKS += ["folder:\0", "table:\0.csv", "folder:\ud800", "table:\ud800.csv", "table:/dev/null"]
BENCHMARKS += ["folder:" + "x" * 5000, "table:" + "x" * 5000, "folder:~no\nbody", "table:~nobody-"]
BENCHMARKS += ["tensors-x-0123456789", "folder-0123456789", "Permuted-MNIST", "x" * 5000, "\x1b[2J"]
METHODS = ["van", "mega-i", "mega-ii", "gem", "a-gem", "er", "icarl", "ewc", "mas", "pi", "rwalk"]
METHODS += ["mer", "multi-task", "prog-nn"]
NAMES = ["learning_rate", "batch_size", "memory_per_class", "epsilon", "curve_images", "margin"]
NAMES += ["heads", "size", "target", "parts", "no such", "\n"]
TEXTS = ["0", "-1", "1", "10", "0.5", "nan", "inf", "1e400", "", "true", "x\n", "9" * 5000, "\0"]
TEXTS += ["1_000", "٣", "0x10", " 5 ", "1e-400", "\ud800", "-" * 500]

overrides = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS), max_size=2)
benchmark, method = mostly(st.sampled_from(BENCHMARKS)), mostly(st.sampled_from(METHODS))
counts = mostly(st.integers(-1, 60_000))


@generated(
    450,
    benchmark=benchmark,
    method=method,
    sizes=maybe(tasks=counts, examples=counts, passes=mostly(st.integers(0, 3))),
    split=st.none() | mostly(st.sampled_from(["training", "tuning"])),
    given_=st.none() | overrides | mostly(overrides),
)
def test_a_spec_is_complete_or_refused(benchmark, method, sizes, split, given_):
    more = {} if split is None else {"split": split}
    spec = attempt(lambda: protocol.specify(benchmark, method, **sizes, **more, overrides=given_))
    if not refused(spec):
        assert 1 <= spec.tasks <= 10_000
        assert 1 <= spec.examples <= 55_000 or spec.benchmark.endswith("0123456789")
        assert all(isinstance(value, str | int | float) for value in spec.settings.values())
    attempt(lambda: protocol.tuning_specs(benchmark, method, **sizes, overrides=given_))
    attempt(lambda: protocol.settings_help(benchmark, method))


def _setting(name):
    fields = [field.name for field in dataclasses.fields(method_entry(name).settings)]
    return st.tuples(st.just(name), st.sampled_from(fields))


@generated(
    400,
    which=st.sampled_from(METHODS).flatmap(_setting),
    value=mostly(st.floats(), st.integers()),
    text=mostly(st.sampled_from(TEXTS), st.text(max_size=3)),
)
def test_a_setting_is_of_its_type_and_within_its_bounds(which, value, text):
    kind = method_entry(which[0]).settings
    for wanted in (value, attempt(lambda: parse(kind, {which[1]: text}).get(which[1]))):
        if isinstance(wanted, EngramError):
            continue
        made = attempt(lambda wanted=wanted: kind(**{which[1]: wanted}))
        if not refused(made):
            bounds = kind.__dataclass_fields__[which[1]].metadata
            held = getattr(made, which[1])
            assert isinstance(held, str) or bounds["least"] <= held <= bounds["most"]


def _pair(kind, size):
    inputs, labels = torch.linspace(0, 1, 3 * size).view(size, 3), torch.arange(size) % 2
    return {
        "good": (inputs, labels),
        "8 bits": ((255 * inputs).to(torch.uint8), labels.numpy()),
        "images": (inputs.view(size, 3, 1, 1), labels),
        "NaN": (inputs / 0, labels),
        "words": (inputs, ["a", "b", "a", "b"][:size]),
        "fractions": (inputs, labels / 2),
        "flat": (inputs[:, 0], labels),
        "one short": (inputs, labels[1:]),
        "ragged": ([[1], [2, 3]], [0, 1]),
        "one class": (inputs, labels * 0),
        "complex": (inputs.to(torch.complex64), labels),
        "nowhere": (inputs.to("meta"), labels),
        "three": (inputs, labels, labels),
    }[kind]


kinds = ["good"] * 40 + ["8 bits", "images", "NaN", "words", "fractions", "flat", "one short"]
kinds += ["ragged", "one class", "complex", "nowhere", "three"]
pairs = mostly(st.builds(_pair, st.sampled_from(kinds), st.sampled_from([4] * 12 + [0, 1])))
tasks = mostly(st.lists(pairs, min_size=1, max_size=2))


@generated(
    350,
    tasks=tasks,
    tests=st.none() | st.none() | tasks,
    name=maybe(name=mostly(st.sampled_from(["mine", "permuted-mnist", "A b", "é", "tensors"]))),
    asked=mostly(st.integers(-1, 2)),
    seeds=mostly(st.lists(st.integers(-1, 3), max_size=2)),
)
def test_own_tensors_become_tasks_or_are_refused(tasks, tests, name, asked, seeds):
    own = attempt(lambda: benchmarks.from_tensors(tasks, tests, **name))
    if refused(own):
        return
    own = own.sized(own.settings())
    stream = attempt(
        lambda: own.build(seeds, own.paper_tasks, own.most_examples, settings=own.settings())
    )
    if refused(stream):
        return
    for serve in (stream.train, stream.train_jointly, lambda task: [*stream.test(task)]):
        attempt(lambda serve=serve: serve(asked))


@generated(300, seeds=junk, device=junk, record_every=junk)
def test_a_run_of_nothing_that_can_be_run_is_refused(seeds, device, record_every):
    spec = protocol.specify("permuted-mnist", "van", tasks=1, examples=10)
    whole = isinstance(record_every, int) and not isinstance(record_every, bool)
    if whole and 0 <= record_every < 2**31:
        record_every = -1
    for more in ({"device": device, "record_every": -1}, {"record_every": record_every}):
        assert refused(attempt(lambda more=more: protocol.run(spec, [0], **more)))
    if isinstance(seeds, range | bytes | bytearray):  # some of which are seeds
        return
    assert refused(attempt(lambda: benchmarks.PermutedMnist(seeds)))
