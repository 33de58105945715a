"""Small data sets in the official folders, every image marked with what it is."""

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from engram.lab.benchmarks import benchmark
from engram.lab.methods import FinishedTask, Setup, method_entry
from engram.lab.protocol import specify

sys.path.append(str(Path(__file__).parents[1] / "data"))  # whose layouts these are

from official_layouts import write_awa, write_cifar_binary, write_cub

SIDE = 16  # pixels of the large images, instead of 224
CIFAR_TRAIN, CIFAR_TEST = 20, 2  # images of each class
CUB_TRAIN = 6
AWA_COUNTS = [20 + 7 * kind % 13 for kind in range(50)]  # images of each class in all


def write_worlds(folder):
    """Write CIFAR-100, CUB-200-2011 and AwA2, with all their classes and few images of each."""
    write_cifar_binary(folder, cifar(CIFAR_TRAIN, seed=0), cifar(CIFAR_TEST, seed=1))
    write_cub(folder, list(birds()))
    write_awa(folder, {f"animal+{kind}": count for kind, count in enumerate(AWA_COUNTS)})


def cifar(count, seed):
    """Return noise in any order; the first pixel is (label, number among its class, 0 or 1)."""
    source = np.random.default_rng(seed)
    labels = source.permutation(np.repeat(np.arange(100), count))
    images = source.integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    seen = Counter()
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, 0, 0] = (label, seen[label], seed)
        seen[label] += 1
    return images, labels


def birds():
    """Yield images of one colour, (label, number among its class, 1 or 0 for testing)."""
    for label in range(200):
        for number in range(CUB_TRAIN + bird_tests(label)):
            training = number < CUB_TRAIN
            colour = (label, number % CUB_TRAIN, training)
            yield label + 1, training, np.full((3, 4, 3), colour, dtype=np.uint8)


def bird_tests(label):
    return 1 + label % 2


def awa_numbers(label):
    """Return the numbers of a class's images for training and for testing."""
    count = AWA_COUNTS[label]
    first = math.floor(0.7 * count)
    return range(first), range(first + math.ceil(0.15 * count), count)


def build(name, seeds=(0,), tasks=17, examples=None, **options):
    made = benchmark(name)
    return made.build(seeds, tasks, examples or made.most_examples, **options)


def marks(inputs):
    """Return (label, number) of images [N, 3, H, W] as stored."""
    return [tuple(mark) for mark in inputs[:, :2, 0, 0].tolist()]


def start(stream, name, method, **changes):
    """Return a method with the benchmark's settings, less the changes, that knows nothing yet."""
    texts = {key: str(value) for key, value in changes.items()}
    settings = specify(name, method, overrides=texts).method_settings()
    network = stream.network()
    drawn = torch.stack([stream.initialise(network, seed) for seed in stream.seeds])
    return method_entry(method).build(Setup(network, drawn, stream.seeds, stream), settings)


def learn(method, stream, task, examples=None):
    """Let a method learn a task, and yield before each step its number and its batch."""
    examples = method.stage_examples(examples or stream.train(task))
    method.begin_task(task, examples.labels)
    size = method.settings.batch_size
    for step in range(-(-examples.labels.shape[1] // size)):
        part = slice(step * size, (step + 1) * size)
        stored = examples.inputs[:, part]
        batch = stream.batch(stored, examples.labels[:, part])
        yield step, batch
        with torch.no_grad():
            method.observe(step, stored, batch)
    with torch.no_grad():
        method.end_task(task, FinishedTask(examples))


def learned(stream, name, method, tasks, **changes):
    """Return a method that has learned so many tasks."""
    made = start(stream, name, method, **changes)
    for task in range(tasks):
        for _ in learn(made, stream, task):
            pass
    return made
