"""Split CUB starts from a pretrained network, or not."""

import pytest
import torch
from resnet_oracles import Plain
from safetensors.torch import save_file
from split_worlds import build, start

from engram.errors import EngramError
from engram.lab.benchmarks import benchmark
from engram.lab.protocol import specify

pytestmark = pytest.mark.usefixtures("split_worlds", "narrow")


def checkpoint(width=2, **options):
    """Return what a file of another training holds: a head of its own, averages, counters."""
    module = Plain(10, width, large_images=True, **options)
    with torch.no_grad():
        for number, value in enumerate(module.state_dict().values()):
            if value.is_floating_point():
                value.copy_(torch.randn(value.shape, generator=torch.manual_seed(number)))
    return module.state_dict()


def stream_of(weights, seeds=(0,), **options):
    return build(
        "split-cub",
        seeds,
        settings=benchmark("split-cub").settings(weights=str(weights)),
        **options,
    )


def first_weights(weights, seed=0):
    stream = stream_of(weights, [seed])
    network = stream.network()
    return network.named_parameters(stream.initialise(network, seed))


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
@pytest.mark.parametrize("shortcut_norm", [True, False])
def test_convolutions_and_norms_come_from_the_file_and_the_head_does_not(
    tmp_path, kind, shortcut_norm
):
    saved, path = checkpoint(shortcut_norm=shortcut_norm), tmp_path / f"weights.{kind}"
    save_file(saved, path) if kind == "safetensors" else torch.save(saved, path)
    found, own = first_weights(path), first_weights("none")
    for name, value in found.items():
        wanted = own[name] if name.startswith("fc.") else saved[name].double()
        assert torch.equal(value, wanted), name
    kinds = {name.split(".")[-2] for name in found}
    assert {"conv1", "conv2", "bn1", "bn2", "0", "fc"} <= kinds  # 0 is a shortcut's convolution
    assert not torch.equal(found["fc.weight"], first_weights(path, seed=1)["fc.weight"])


def test_running_averages_start_at_nothing(tmp_path):
    torch.save(checkpoint(), tmp_path / "weights.pth")
    method = start(stream_of(tmp_path / "weights.pth"), "split-cub", "van")
    assert method.buffers.shape[1] > 0
    assert not method.buffers.any()


def test_tuning_starts_from_it_too(tmp_path):
    torch.save(saved := checkpoint(), tmp_path / "weights.pth")
    stream = stream_of(tmp_path / "weights.pth", tasks=3, tuning=True)
    network = stream.network()
    found = network.named_parameters(stream.initialise(network, 0))
    assert torch.equal(found["conv1.weight"], saved["conv1.weight"].double())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path, "cannot be read: No such file"),
        (lambda path: path.write_bytes(b"no checkpoint"), "is not a checkpoint of tensors alone"),
        (lambda path: torch.save({"conv1.weight": torch.zeros(1)}, path), "has no bn1.weight"),
        (
            lambda path: torch.save(checkpoint(width=3), path),
            r"has no conv1.weight of shape \(2, 3, 7, 7\)",
        ),
        (
            lambda path: torch.save(
                {k: v for k, v in checkpoint().items() if "layer3.0.downsample" not in k}, path
            ),
            "has no layer3.0.downsample.0.weight of shape",
        ),
    ],
    ids=["missing", "another file", "other tensors", "another width", "a tensor missing"],
)
def test_a_wrong_file_is_told_in_one_sentence(tmp_path, make, sentence):
    make(tmp_path / "weights.pth")
    with pytest.raises(EngramError, match=sentence) as caught:
        first_weights(tmp_path / "weights.pth")
    assert str(tmp_path / "weights.pth") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_the_public_checkpoint_one_is_told_how_to_have_it():
    assert benchmark("split-cub").settings().weights == "resnet18-imagenet"
    with pytest.raises(EngramError, match="run `engram data fetch resnet18-imagenet`"):
        first_weights("resnet18-imagenet")


def test_a_result_is_filed_under_what_the_file_holds_and_not_where_it_lies(tmp_path):
    def identity(weights):
        return specify("split-cub", "van", overrides={"weights": str(weights)}).identity()

    for name, saved in {"one": checkpoint(), "two": checkpoint(shortcut_norm=False)}.items():
        torch.save(saved, tmp_path / f"{name}.pth")
    (tmp_path / "copy.pth").write_bytes((tmp_path / "one.pth").read_bytes())
    assert identity(tmp_path / "one.pth") == identity(tmp_path / "copy.pth")
    assert identity(tmp_path / "one.pth") != identity(tmp_path / "two.pth") != identity("none")
