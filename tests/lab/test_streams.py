"""Permuted MNIST as the paper's runs had it."""

import gzip
import shutil
from importlib import resources

import numpy as np
import pytest
import torch

from engram.errors import EngramError
from engram.lab.benchmarks import PermutedMnist, benchmark, load_mnist, mnist_checksums


def test_the_embedded_files_are_mnist():
    mnist = load_mnist()
    assert mnist.train_images.shape == (55_000, 784)
    assert mnist.validation_images.shape == (5_000, 784)
    assert mnist.test_images.shape == (10_000, 784)
    # The first label of the 60,000 is a five; after the first 5,000 comes a seven.
    assert mnist.validation_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    # The published mean of the training pixels is 0.1307 (of 60,000 images).
    every = torch.cat([mnist.train_images, mnist.validation_images])
    assert every.double().mean().item() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert len(mnist_checksums()) == 4


def test_a_training_example_is_served_once():
    stream = PermutedMnist([0], tasks=2, examples=10)
    stream.train(0)
    with pytest.raises(EngramError, match="served already"):
        stream.train(0)
    with pytest.raises(EngramError, match="from 0 to 1"):
        stream.train(2)


def test_a_task_is_mnist_under_one_permutation():
    stream = PermutedMnist([3], tasks=2, examples=300)
    inputs, labels = stream.train(1)
    permutation = stream._permutations[0, 1]
    undone = torch.empty_like(inputs[0])
    undone[:, permutation] = inputs[0]
    originals = {bytes(image): label for image, label in _images_and_labels()}
    assert all(
        originals[bytes(image.numpy())] == label
        for image, label in zip(undone, labels[0].tolist(), strict=True)
    )


def _images_and_labels():
    mnist = load_mnist()
    return zip(mnist.train_images.numpy(), mnist.train_labels.tolist(), strict=True)


def test_a_full_task_serves_every_example():
    inputs, labels = PermutedMnist([0], tasks=1).train(0)
    assert inputs.shape == (1, 55_000, 784)
    assert labels[0].bincount().tolist() == load_mnist().train_labels.bincount().tolist()


@pytest.mark.parametrize("tuning", [False, True])
def test_test_batches_are_the_permuted_images(tuning):
    stream = PermutedMnist([0, 1], tasks=2, examples=1, tuning=tuning)
    mnist = load_mnist()
    images = mnist.validation_images if tuning else mnist.test_images
    wanted = {bytes(image) for image in images[:, stream._permutations[1, 1]].numpy()}
    rebuilt = []
    for batch in stream.test(1):
        full = torch.zeros(len(batch.inputs), 784)
        full[:, batch.columns[1]] = batch.inputs
        rebuilt.extend(bytes(row) for row in full.mul(255).round().byte().numpy())
    assert len(rebuilt) == len(images)
    assert set(rebuilt) == wanted


def test_tuning_tasks_are_no_training_tasks():
    training = PermutedMnist([0], tasks=17, examples=1)._permutations[0]
    tuning = PermutedMnist([0], tasks=3, examples=1, tuning=True)._permutations[0]
    assert not any((training == permutation).all(1).any() for permutation in tuning)


def test_each_seed_has_its_own_permutations_unless_they_are_shared():
    own = PermutedMnist([0, 1], tasks=2, examples=1)._permutations
    assert (own[0] != own[1]).any(-1).all()
    settings = benchmark("permuted-mnist").settings(shared_permutations=True)
    shared = PermutedMnist([0, 1], tasks=2, examples=1, settings=settings)._permutations
    assert (shared[0] == shared[1]).all()
    # The authors' first permutation, from numpy's legacy generator seeded with 1234.
    assert shared[0, 0, :10].tolist() == [529, 511, 328, 133, 532, 378, 156, 305, 143, 582]


def test_runs_are_the_same_alone_or_stacked():
    alone = PermutedMnist([7], tasks=2, examples=50).train(1)
    stacked = PermutedMnist([6, 7], tasks=2, examples=50).train(1)
    assert (alone.inputs[0] == stacked.inputs[1]).all()
    assert (alone.labels[0] == stacked.labels[1]).all()


def test_the_joint_parts_are_the_union_of_the_tasks():
    def images(served):
        return sorted(bytes(row) for part in served for row in part.inputs[0].numpy())

    joint = PermutedMnist([0], tasks=3, examples=40)
    apart = PermutedMnist([0], tasks=3, examples=40)
    parts = [joint.train_jointly(part) for part in range(3)]
    assert images(parts) == images([apart.train(task) for task in range(3)])
    assert parts[0].inputs.shape == (1, 40, 784)


@pytest.mark.parametrize(("field", "value"), [("tasks", 0), ("examples", 0), ("examples", 55_001)])
def test_impossible_streams_are_refused(field, value):
    with pytest.raises(EngramError, match=f"{field} must be"):
        PermutedMnist([0], **{field: value})


def test_inputs_are_scaled_to_the_unit_interval():
    stream = PermutedMnist([0], tasks=1, examples=1)
    scaled = stream.normalise(torch.tensor([0, 51, 255], dtype=torch.uint8))
    assert np.allclose(scaled, [0, 0.2, 1])


@pytest.mark.parametrize("first", ["train", "train_jointly"])
def test_tasks_and_their_union_are_not_both_served(first):
    second = {"train": "train_jointly", "train_jointly": "train"}[first]
    stream = PermutedMnist([0], tasks=2, examples=10)
    getattr(stream, first)(0)
    with pytest.raises(EngramError, match="one pass over each"):
        getattr(stream, second)(1)


def test_tuning_tasks_are_no_training_tasks_where_these_are_the_authors_either():
    settings = benchmark("permuted-mnist").settings(shared_permutations=True)
    training = PermutedMnist([0], tasks=17, examples=1, settings=settings)._permutations[0]
    tuning = PermutedMnist([0], tasks=3, examples=1, settings=settings, tuning=True)
    assert not any((training == mine).all(1).any() for mine in tuning._permutations[0])


@pytest.mark.parametrize("seeds", [[], [-1], [0, 1.5]])
def test_impossible_seeds_are_refused(seeds):
    with pytest.raises(EngramError, match="seeds must be whole numbers of at least 0, one or more"):
        PermutedMnist(seeds)


@pytest.mark.parametrize(
    "content",
    [None, b"no gzip", gzip.compress(b"other"), b"\x1f\x8b\x08"],
    ids=["missing", "not packed", "another file", "cut short"],
)
def test_a_damaged_file_is_refused_in_one_sentence(content, tmp_path, monkeypatch):
    shutil.copytree(resources.files("engram.lab.benchmarks") / "mnist", tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    path.unlink() if content is None else path.write_bytes(content)
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    load_mnist.cache_clear()
    with pytest.raises(EngramError, match=r"train-labels-idx1-ubyte.gz is damaged; install"):
        load_mnist()
