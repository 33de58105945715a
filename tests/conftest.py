"""What all tests have in common."""

import gc
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from engram import plugins
from engram.app.cli import main

HERE = Path(__file__).parent
NUMERICAL = ("engine", "gradients", "rules")  # folders; elsewhere a module says it of itself
SEVERAL_PROCESSES = {"test_parallel.py", "test_lightning.py"}  # too long for six times over


def pytest_configure(config):
    """Let no generated case fail for the time that it takes: machines are slow, or busy."""
    if not config.pluginmanager.hasplugin("hypothesispytest"):
        return  # tests on a GPU do without
    from hypothesis import HealthCheck, settings

    settings.register_profile("engram", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("engram")


def pytest_collection_modifyitems(items):
    """Mark what floating-point arithmetic decides, for `make test-portable`."""
    for item in items:
        inside = any(item.path.is_relative_to(HERE / folder) for folder in NUMERICAL)
        if inside and item.path.name not in SEVERAL_PROCESSES:
            item.add_marker(pytest.mark.numerical)


def pytest_collection_finish():
    """Spare the garbage collector what stays for good: every module that was imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _as_many_threads_as_before():
    """Let no test leave the others another number of threads than they were started with."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


class Answer(NamedTuple):
    """What a command has come to."""

    code: int
    out: str
    err: str


@pytest.fixture
def engram(monkeypatch, capsys):
    """Give a command in this process; return its exit code and what was printed.

    Options may be named: ``seeds=2``, ``json=True``, ``settings=("key=value",)``.
    """

    def call(*words, **options):
        typed = [*map(str, words), *_typed(options)]
        monkeypatch.setattr(sys, "argv", ["engram", *typed])
        with pytest.raises(SystemExit) as ended:
            main()
        return Answer(ended.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def plugins_apart(tmp_path, monkeypatch):
    """Let what a test registers and loads from its folder be forgotten after it."""
    for registry in plugins.REGISTRIES.values():
        monkeypatch.setattr(registry, "_held", dict(registry._held))
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(plugins.FILES, "")
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def cub_checksums(monkeypatch):
    """Let Split CUB's images have a checksum, or within a ``with`` those and all files of weights.

    So nobody needs the images, nor the public weights.
    """

    @contextmanager
    def within(weights):
        with monkeypatch.context() as patched:
            name = "engram.lab.benchmarks.split_cub.weights_checksum"
            patched.setattr(name, lambda _: weights)
            yield

    def told(images, weights=None):
        monkeypatch.setattr("engram.lab.benchmarks.split_cub.checksum", lambda _: images)
        return within(weights)

    return told


@pytest.fixture
def awa_images(monkeypatch):
    """Let Split AWA's data be these images."""

    def served(images):
        monkeypatch.setattr("engram.lab.benchmarks.split_awa.load", lambda _: images)

    return served


@pytest.fixture
def quick_figures(monkeypatch):
    """Let reports come without files of figures; return a list of what would be drawn."""
    drawn = []
    name = "engram.app.report.html.page.save_figure"
    monkeypatch.setattr(name, lambda title, charts, *_: drawn.append((title, charts)))
    return drawn


def _typed(options):
    words = []
    for name, value in options.items():
        option = "--set" if name == "settings" else f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option] * value
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [option, str(each)]
    return words
