from functools import partial

import pytest
from own_networks import write_network
from own_worlds import HOLIDAYS, write_drifting, write_photos
from split_worlds import SIDE, write_worlds

from engram.lab.benchmarks import PermutedMnist, Stream, benchmark, load_mnist, permuted_mnist
from engram.lab.benchmarks.own_data import OwnStream
from engram.lab.networks import MLP, ResNet

SplitCifar, SplitCub, SplitAwa = (
    benchmark(name).build for name in ("split-cifar", "split-cub", "split-awa")
)


@pytest.fixture(scope="session")
def worlds(tmp_path_factory):
    place = tmp_path_factory.mktemp("worlds")
    (place / "data").mkdir()
    write_worlds(place / "data")
    return place


@pytest.fixture
def split_worlds(worlds, monkeypatch):
    """Serve the image benchmarks from small official folders."""
    monkeypatch.setenv("ENGRAM_DATA", str(worlds / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(worlds / "cache"))
    for module in ("images", "cub", "awa"):
        monkeypatch.setattr(f"engram.lab.data.{module}.SIDE", SIDE)


@pytest.fixture
def narrow(monkeypatch):
    """Make the networks of the image benchmarks two filters wide, in double precision."""
    full = {"large_images": True, "shortcut_norm": False}
    monkeypatch.setattr(SplitCifar, "network", lambda self: ResNet(self.classes, 2))
    for stream in (SplitCub, SplitAwa):
        monkeypatch.setattr(stream, "network", lambda self: ResNet(self.classes, 2, **full))
    for stream in (SplitCifar, SplitCub, SplitAwa):
        in_double(monkeypatch, stream, "normalise")
    in_double(monkeypatch, Stream, "initialise")


@pytest.fixture
def flat(monkeypatch):
    """Make them perceptrons of three hidden units on raw pixels, in double precision."""
    for stream in (SplitCifar, SplitCub, SplitAwa):
        monkeypatch.setattr(stream, "network", lambda self: MLP((self.features, 3, self.classes)))
        monkeypatch.setattr(stream, "normalise", lambda _, inputs: inputs.flatten(2).double() / 255)
    monkeypatch.setattr(SplitCub, "initialise", Stream.initialise)
    for stream in (Stream, SplitCub):
        in_double(monkeypatch, stream, "initialise")


@pytest.fixture
def double_table(monkeypatch):
    """Let runs on a table be in double precision."""
    in_double(monkeypatch, OwnStream, "normalise")
    in_double(monkeypatch, Stream, "initialise")


@pytest.fixture
def double_mnist(monkeypatch):
    """Let runs on Permuted MNIST be in double precision."""
    in_double(monkeypatch, PermutedMnist, "normalise")
    in_double(monkeypatch, Stream, "initialise")
    cut = permuted_mnist._test_groups
    monkeypatch.setattr(
        permuted_mnist,
        "_test_groups",
        lambda *given: [(inputs.double(), *others) for inputs, *others in cut(*given)],
    )


def in_double(monkeypatch, owner, name):
    single = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: single(*given).double())


@pytest.fixture
def few_mnist(monkeypatch):
    """Return a function that leaves Permuted MNIST so many images to be scored on."""

    def left(count):
        mnist = load_mnist()
        scored = [name for name in mnist._fields if not name.startswith("train")]
        few = mnist._replace(**{name: getattr(mnist, name)[:count] for name in scored})
        monkeypatch.setattr(permuted_mnist, "load_mnist", lambda: few)

    return left


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Decode one's own images into a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path / "photos", HOLIDAYS)


@pytest.fixture
def sales(tmp_path):
    return write_drifting(tmp_path / "sales.csv")


@pytest.fixture
def network_file(tmp_path):
    """Return a function that writes a module of a network's into a folder of the test's own."""
    return partial(write_network, tmp_path)
