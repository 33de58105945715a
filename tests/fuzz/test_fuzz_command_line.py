"""Whatever is typed: an answer, or one sentence and an exit code; no trace of a half-done thing."""

import io
import sys

import pytest
from fuzz_cases import check_sentence, generated
from fuzz_files import NAMES, contents
from hypothesis import strategies as st

from engram.app.cli import main

INTEGERS = ["1", "2", "0", "-1", "2147483648", "9" * 30, "9" * 400, "9" * 5000, "x", "", "1.5", "٣"]
SECONDS = ["0", "1", "1e300", "-1", "nan", "inf", "x"]
DEVICES = ["cpu", "cpu", "auto", "cuda:99", "cuda:-1", "meta", "x", "\n", "cpu:7", "\ud800"]
PATHS = ["store.sqlite"] * 5 + ["lines.jsonl", "table.csv", "study.toml", "empty", *NAMES]
BENCHMARKS = ["permuted-mnist"] * 9 + ["split-cifar", "table:table.csv", "folder:folder", "\ud800"]
BENCHMARKS += ["table:", "folder:loop", "table:\0", "x" * 5000, "a\nb", "many-permutations-30", "-"]
METHODS = ["van"] * 6 + ["mega-i", "mega-ii", "gem", "multi-task", "prog-nn", "x", "a\x1b[2J", "é"]
SETTINGS = ["learning_rate=0.1", "learning_rate=-1", "epsilon=nan", "=", "x", "a=b=c", "\n=1", "\0"]
SETTINGS += ["target=y", "task=t", "batch_size=" + "9" * 5000, "memory_per_class=1e999", "x=\ud800"]


def _some(**options):
    """Up to three of the options, each with one of its values; None stands for a flag."""
    pairs = {}
    for name, values in options.items():
        flag = f"--{name.replace('_', '-')}"
        pairs[name] = st.tuples(
            st.just(flag), *([] if values is None else [st.sampled_from(values)])
        )
    chosen = st.lists(st.sampled_from(sorted(pairs)), max_size=3, unique=True)
    return chosen.flatmap(lambda names: st.tuples(*(pairs[name] for name in names)))


TRAINING = {
    "seeds": INTEGERS,
    "tasks": INTEGERS,
    "examples": ["10", "10", *INTEGERS],
    "set": SETTINGS,
    "device": DEVICES,
    "data": PATHS,
    "store": PATHS,
    "checkpoint_every": SECONDS,
    "deterministic": None,
    "json": None,
}
FILTERS = {"benchmark": BENCHMARKS, "method": METHODS, "split": ["training", "tuning", "x", "\n"]}
run = st.tuples(
    st.sampled_from(["run"]),
    st.sampled_from(BENCHMARKS),
    st.sampled_from(METHODS),
    _some(
        **TRAINING,
        tuned=None,
        record=["steps", "x"],
        record_every=INTEGERS,
        tensorboard=PATHS,
        again=None,
        help_settings=None,
    ),
)
tune = st.tuples(
    st.just("tune"),
    st.sampled_from(BENCHMARKS),
    st.sampled_from(METHODS),
    _some(**TRAINING, passes=INTEGERS),
)
reproduce = st.tuples(
    st.just("reproduce"),
    st.sampled_from(["study.toml"] * 5 + ["k2", "table-1", "x", "x.toml", "lines.jsonl", *NAMES]),
    _some(
        seeds=INTEGERS,
        device=DEVICES,
        data=PATHS,
        store=PATHS,
        checkpoint_every=SECONDS,
        dry_run=None,
    ),
)
results = st.tuples(
    st.just("results"),
    _some(**FILTERS, device=DEVICES, store=PATHS, json=None, csv=None, export=PATHS, merge=PATHS),
)
others = st.one_of(
    st.tuples(st.just("report"), _some(store=PATHS, out=PATHS)),
    st.tuples(st.just("data"), _some(data=PATHS, json=None)),
    st.tuples(
        st.just("data"),
        st.just("fetch"),
        st.sampled_from(["cifar-100", "awa2", "x", "\n", "\ud800"]),
        _some(data=PATHS),
    ),
    st.tuples(st.just("bench"), _some(device=DEVICES, json=PATHS)),
    st.tuples(st.sampled_from(["", "x", "--version", "--help", "-", "\0", "\ud800"])),
)


def _flat(words):
    return [word for each in words for word in ([each] if isinstance(each, str) else _flat(each))]


def _called(words, encoding):
    """Return the exit code and what was printed to stderr."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, line_buffering=True) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["engram", *words])
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit) as ended:
            main()
    streams[1].flush()
    told = streams[1].buffer.getvalue()
    return ended.value.code, told.decode(encoding)


def _check(world, words, encoding):
    folder = world()
    before = contents(folder)
    code, told = _called(words, encoding)
    assert code in (None, 0, 1, 2), words
    if code == 2 and not told.startswith("Usage:"):
        *remarks, sentence = told.splitlines()
        assert sentence.startswith("engram: "), told
        check_sentence(sentence.removeprefix("engram: ").replace("\\u2026", "…"))
        assert not [line for line in remarks if line.startswith(("engram: ", "Traceback"))], told
        assert contents(folder) == before or "--merge" in words
    assert not [*folder.rglob("*.part*"), *folder.rglob(".*"), *folder.rglob("*-journal")]


encodings = st.sampled_from(["utf-8", "utf-8", "ascii", "latin-1", "utf-16"])


@generated(180, words=run.map(_flat), encoding=encodings)
def test_run(world, words, encoding):
    _check(world, words, encoding)


@generated(70, words=tune.map(_flat), encoding=encodings)
def test_tune(world, words, encoding):
    _check(world, words, encoding)


@generated(100, words=reproduce.map(_flat), encoding=encodings)
def test_reproduce(world, words, encoding):
    _check(world, words, encoding)


@generated(120, words=results.map(_flat), encoding=encodings)
def test_results(world, words, encoding):
    _check(world, words, encoding)


@generated(100, words=others.map(_flat), encoding=encodings)
def test_report_data_bench_and_nothing_at_all(world, words, encoding):
    _check(world, words, encoding)
