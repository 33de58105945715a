"""Training on one's own data that starts from the weights in a file."""

import hashlib

import numpy as np
import pytest
import torch
from own_worlds import write_drifting
from safetensors.torch import save_file
from tiny_worlds import run_whole

from engram.errors import EngramError
from engram.lab.benchmarks import from_tensors
from engram.lab.networks import ResNet
from engram.lab.networks.plain import PlainMLP, PlainResNet
from engram.lab.protocol import build_method, build_stream, check_network, run, specify

OWN = """
from torch import nn

class Frozen(nn.Module):
    '''A frozen layer and a norm behind it; the head is the last.'''

    def __init__(self, shape, outputs, width=5):
        super().__init__()
        self.first = nn.Linear(shape[0], width).requires_grad_(False)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, outputs)

    def forward(self, inputs):
        return self.head(self.norm(self.first(inputs)).relu())
"""


@pytest.fixture(scope="module", autouse=True)
def _known():
    source = np.random.default_rng(0)
    vectors = [(source.random((12, 4), np.float32), np.arange(12) % 3) for _ in range(2)]
    pictures = [(source.random((12, 3, 16, 16), np.float32), np.arange(12) % 3) for _ in range(2)]
    from_tensors(vectors, name="start-vectors")
    from_tensors(pictures, name="start-pictures")


def random_state(module, seed=0):
    """Return the state of a module with other numbers in it."""
    source = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(value.shape, generator=source) if value.is_floating_point() else value
        for name, value in module.state_dict().items()
    }


def saved(state, path):
    (save_file if path.suffix == ".safetensors" else torch.save)(state, path)
    return path


def spec_of(benchmark, weights, method="van", **options):
    overrides = {"weights": str(weights), "batch_size": "3"}
    return specify(benchmark, method, overrides=overrides, **options)


def start(spec, seeds=(0,)):
    """Return the network, and what it begins with by name: parameters and buffers."""
    stream = build_stream(spec, seeds, "cpu")
    method = build_method([spec] * len(seeds), stream, "cpu")
    network = method.network
    held = network.named_buffers(method.buffers[0]) if network.buffer_size else {}
    return network, network.named_parameters(method.parameters[0]), held


@pytest.mark.parametrize("kind", [".pt", ".pth", ".safetensors"])
@pytest.mark.parametrize("outputs", [3, 7])
def test_a_perceptron_is_that_of_the_file_and_other_outputs_are_drawn(tmp_path, kind, outputs):
    module = PlainMLP((4,), outputs, width=9, depth=3)
    state = random_state(module)
    path = saved(state, tmp_path / f"weights{kind}")
    network, found, _ = start(spec_of("start-vectors", path))
    assert network.sizes == (4, 9, 9, 9, 3)
    drawn = network.named_parameters(network.initialise(np.random.default_rng(0)))
    for name, value in found.items():
        if outputs == 3 or not name.startswith("7."):
            assert torch.equal(value, state[name]), name
        else:
            assert value.shape == drawn[name].shape
            assert not torch.equal(value, torch.zeros_like(value))
    if outputs == 3:  # the network answers as the one in the file does
        module.load_state_dict(state)
        inputs = torch.rand(6, 4)
        flat = torch.cat([each.flatten() for each in network.tensors(torch.zeros(network.size))])
        for name, view in network.named_parameters(flat).items():
            view.copy_(found[name])
        answers = network.predict(flat.unsqueeze(0), inputs, None)
        torch.testing.assert_close(answers[0], module(inputs))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"width": 4},
        {"width": 4, "large_images": True, "shortcut_norm": False},
        {"width": 4, "large_images": True, "max_pool": True},
    ],
    ids=str,
)
def test_a_residual_network_is_that_of_the_file_with_its_running_averages(tmp_path, options):
    network = ResNet(5, **options)
    source = torch.Generator().manual_seed(1)
    state = {
        name: torch.rand(shape, generator=source)
        for layout in (network.layout, network.buffer_layout)
        for name, shape in layout.shapes.items()
    }
    path = saved(state, tmp_path / "weights.safetensors")
    made, found, held = start(spec_of("start-pictures", path))
    assert made.layout.shapes | {"fc.weight": 0, "fc.bias": 0} == (
        network.layout.shapes | {"fc.weight": 0, "fc.bias": 0}
    )
    assert (made.max_pool, made.large_images) == (network.max_pool, network.large_images)
    for name, value in {**found, **held}.items():
        if not name.startswith("fc."):
            assert torch.equal(value, state[name]), name
    assert len(held) > 0
    assert len(found["fc.weight"]) == 3


def test_a_network_of_one_s_own_takes_what_is_frozen_and_its_averages_too(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    scope = {}
    exec(OWN, scope)
    state = random_state(scope["Frozen"]((4,), 8))
    path = saved(state, tmp_path / "weights.pt")
    spec = spec_of("start-vectors", path, network=f"{tmp_path / 'own.py'}:Frozen")
    check_network(spec)
    _, found, held = start(spec, [0, 1])
    for name, value in {**found, **held}.items():
        if not name.startswith("head."):
            assert torch.equal(value, state[name].to(value)), name
    assert {"first.weight", "norm.running_var"} <= {*held}
    (outcome,) = run(spec, [0])
    assert outcome.failure is None


def test_a_table_starts_from_it_and_so_does_a_new_network_of_gdumb(tmp_path):
    table = write_drifting(tmp_path / "drift.csv", tasks=2, rows=20)
    state = random_state(PlainMLP((5,), 2, width=6, depth=1))
    path = saved(state, tmp_path / "weights.pt")
    told = {"target": "bought", "time": "day", "parts": "2", "weights": str(path)}
    small = {"batch_size": "4", "learning_rate": "1e-9", "epochs": "1"}
    spec = specify(f"table:{table}", "gdumb", overrides={**told, **small})
    _, (left,) = run_whole(spec, [0])
    network = build_stream(spec, [0], "cpu").network()
    for name, value in network.named_parameters(left["parameters"][0]).items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=1e-6)


def test_results_are_filed_under_what_the_file_holds_and_not_where_it_is(tmp_path):
    module = PlainMLP((4,), 3, width=6, depth=1)
    one, same, other = (
        saved(random_state(module, seed), tmp_path / f"{name}.safetensors")
        for name, seed in (("one", 0), ("same", 0), ("other", 1))
    )
    plain = specify("start-vectors", "van", overrides={"batch_size": "3"}).identity()
    assert "weights" not in plain["settings"]
    digest = hashlib.sha256(one.read_bytes()).hexdigest()
    identity = spec_of("start-vectors", one).identity()
    assert identity["settings"] == {**plain["settings"], "weights": f"sha256:{digest}"}
    assert identity["data"] == plain["data"]
    assert spec_of("start-vectors", same).identity() == identity
    assert spec_of("start-vectors", other).identity() != identity


def test_a_file_that_is_changed_after_the_command_was_given_is_refused(tmp_path):
    module = PlainMLP((4,), 3, width=6, depth=1)
    path = saved(random_state(module), tmp_path / "weights.pt")
    spec = spec_of("start-vectors", path)
    spec.identity()
    saved(random_state(module, 1), path)
    with pytest.raises(EngramError, match=r"The file of weights, .*, was changed after the"):
        run(spec, [0])


def faulty(name, value):
    def make(path):
        state = random_state(PlainMLP((4,), 3, width=6, depth=2)) | {name: value}
        saved({key: each for key, each in state.items() if each is not None}, path)

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path, r"cannot be read: No such file"),
        (lambda path: path.mkdir(), r"cannot be read: Is a directory"),
        (lambda path: path.write_bytes(b"PK\3\4"), "is not a checkpoint of tensors alone"),
        (lambda path: torch.save([torch.zeros(1)], path), "it is not tensors by name alone"),
        (lambda path: torch.save({"model": {}}, path), "it is not tensors by name alone"),
        (lambda path: torch.save({"x": torch.zeros(1)}, path), "has no 1.weight"),
        (faulty("1.weight", torch.zeros(6, 3)), r"has no 1.weight of shape \(6, 4\)"),
        (faulty("1.bias", None), r"has no 1.bias of shape \(6,\)"),
        (faulty("3.weight", torch.zeros(6, 6).int()), r"has no 3.weight of shape \(6, 6\)"),
        (faulty("5.weight", torch.zeros(3, 7)), r"has no 5.weight of shape \(3, 6\)"),
        (faulty("3.bias", torch.full((6,), torch.nan)), "weights must be finite, but 3.bias"),
    ],
)
def test_what_is_no_checkpoint_of_it_is_refused(tmp_path, make, said):
    path = tmp_path / "weights.pt"
    make(path)
    with pytest.raises(EngramError, match=said):
        check_network(spec_of("start-vectors", path))


@pytest.mark.parametrize("name", ["", "resnet18-imagenet", "\0", "weights.bin", "~nobody/w.pt"])
def test_what_names_no_checkpoint_is_refused(name, monkeypatch, tmp_path):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    with pytest.raises(EngramError):
        check_network(spec_of("start-vectors", name))


def test_a_residual_network_is_asked_for_by_images(tmp_path):
    path = saved(random_state(PlainMLP((4,), 3)), tmp_path / "mlp.pt")
    with pytest.raises(EngramError, match=r"must be a checkpoint of a ResNet-18 where no"):
        check_network(spec_of("start-pictures", path))
    path = saved(random_state(PlainResNet((3, 16, 16), 3, width=4)), tmp_path / "plain.pt")
    check_network(spec_of("start-pictures", path))
    check_network(spec_of("start-pictures", path, method="prog-nn"))


def test_the_command_says_what_is_wrong_before_anything_is_stored(engram, tmp_path):
    table = write_drifting(tmp_path / "drift.csv", tasks=2, rows=20)
    words = (
        "run",
        f"table:{table}",
        "van",
        "--set",
        "target=bought",
        "--set",
        "time=day",
        "--set",
        "parts=2",
    )
    store = tmp_path / "store.sqlite"
    done = engram(*words, "--set", f"weights={tmp_path / 'no.pt'}", "--store", store)
    assert done.code == 2
    assert "The checkpoint" in done.err
    assert "cannot be read" in done.err
    assert not store.exists()
