"""Permuted MNIST: every task is MNIST under a permutation of the pixels of its own.

The images ship inside the package, in the folder ``mnist``.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.errors import EngramError
from engram.lab.benchmarks.stream import PERCEPTRONS, Benchmark, Examples, Stream, TestBatch
from engram.lab.networks import MLP
from engram.lab.plan import generator
from engram.lab.settings import Scalar, Settings, setting

_NAME = "permuted-mnist"
_VALIDATION = 5_000  # the first 5,000 of the 60,000, as the reader behind the paper cuts them
_PIXELS = 784
_WHITE = torch.tensor(255, dtype=torch.float32)  # its dtype is that of the quotient
_AUTHORS_SEED = 1234
_JOINT_ROWS = 4_000  # rows permuted at once, so that the index table stays small
_TESTED = 64  # permutations, those of all runs, that a GPU predicts the test images under at once
_ROWS_ON_CPU = 250  # test images of a group


class Mnist(NamedTuple):
    """55,000 training, 5,000 validation and 10,000 test images, flat, 8 bits a pixel."""

    train_images: Tensor  # [55000, 784], uint8
    train_labels: Tensor  # [55000], int64
    validation_images: Tensor
    validation_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@cache
def load_mnist() -> Mnist:
    """Read the embedded files; a file that does not match its checksum is refused."""
    images, labels = _read("train-images-idx3-ubyte", 784), _read("train-labels-idx1-ubyte", 1)
    test_images, test_labels = (
        _read("t10k-images-idx3-ubyte", 784),
        _read("t10k-labels-idx1-ubyte", 1),
    )
    labels, test_labels = labels.flatten().long(), test_labels.flatten().long()
    cut = _VALIDATION
    return Mnist(images[cut:], labels[cut:], images[:cut], labels[:cut], test_images, test_labels)


@cache
def mnist_checksums() -> dict[str, str]:
    """Return the SHA-256 of each file's uncompressed content."""
    text = resources.files("engram.lab.benchmarks").joinpath("mnist/SHA256SUMS").read_text()
    return {name: checksum for checksum, name in (line.split() for line in text.splitlines())}


def _read(name: str, width: int) -> Tensor:
    file = resources.files("engram.lab.benchmarks").joinpath(f"mnist/{name}.gz")
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error):
        content = b""  # which no checksum matches
    if hashlib.sha256(content).hexdigest() != mnist_checksums()[name]:
        raise EngramError(f"The embedded file {name}.gz is damaged; install the package again.")
    header = 4 + 4 * content[3]  # the magic number's last byte is the number of dimensions
    values = np.frombuffer(content, dtype=np.uint8, offset=header).reshape(-1, width)
    return torch.from_numpy(values.copy())


@dataclass(frozen=True)
class PermutedMnistSettings(Settings):
    """Settings of Permuted MNIST."""

    shared_permutations: bool = setting(
        False, "all seeds share the authors' one set of permutations, instead of each its own"
    )
    curve_images: int = setting(
        10_000,
        "test images behind each point of a learning curve, the first ones; all unless given",
        least=1,
        most=10_000,
        later=True,
    )
    precision: Literal["float32", "tf32"] = setting(
        "float32",
        "how a GPU multiplies in the network's passes: float32 (all bits), or tf32 (10 of them)",
        later=True,
    )


class PermutedMnist(Stream):
    """The paper's first benchmark (55,000 training and 10,000 test images for each task).

    With ``tuning`` the tasks are others: their permutations come from another draw than any
    training task's, and they are scored on the 5,000 validation images.
    """

    most_examples = 55_000
    classes = classes_per_task = 10
    features = _PIXELS

    def __init__(
        self,
        seeds: Sequence[int],
        tasks: int = 17,
        examples: int = 55_000,
        *,
        settings: PermutedMnistSettings | None = None,
        tuning: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(seeds, tasks, examples)
        self.device = torch.device(device)
        self._split = "tuning" if tuning else "training"
        mnist = load_mnist()
        self._images = mnist.train_images.to(self.device)
        self._labels = mnist.train_labels.to(self.device)
        settings = settings or PermutedMnistSettings()
        images, labels = (
            (mnist.validation_images, mnist.validation_labels)
            if tuning
            else (mnist.test_images, mnist.test_labels)
        )
        self._tf32 = settings.precision == "tf32"
        few = settings.curve_images
        self._at_once = 1 if self.device.type == "cpu" else max(1, _TESTED // len(self.seeds))
        self._tests = _test_groups(images, labels, self.device)
        self._curve_tests = (
            self._tests
            if few >= len(images)
            else _test_groups(images[:few], labels[:few], self.device)
        )
        self._permutations = self._draw_permutations(settings.shared_permutations)  # [R, T, 784]

    def _draw_permutations(self, shared: bool) -> Tensor:
        if shared and self._split == "training":  # tuning tasks are never training tasks
            # The authors' runs all re-seed numpy's legacy generator with the same seed.
            authors = np.random.RandomState(_AUTHORS_SEED)
            one = np.stack([_shuffled(authors) for _ in range(self.tasks)])
            every = np.stack([one] * len(self.seeds))
        else:
            every = np.stack(
                [
                    [
                        generator(seed, f"{self._split} permutation", task).permutation(_PIXELS)
                        for task in range(self.tasks)
                    ]
                    for seed in self.seeds
                ]
            )
        return torch.from_numpy(every).to(self.device)

    def _chosen(self, seed: int, task: int) -> NDArray[np.int64]:
        """Return which images a run sees in a task, in their order."""
        order = generator(seed, f"{self._split} order", task).permutation(self.most_examples)
        return order[: self.examples]

    def training_examples(self, task: int) -> Examples:
        """Return the training examples of a task."""
        rows = np.stack([self._chosen(seed, task) for seed in self.seeds])
        order = torch.from_numpy(rows).to(self.device)
        inputs = torch.stack(
            [
                self._images.index_select(0, images).index_select(1, permutation)
                for images, permutation in zip(order, self._permutations[:, task], strict=True)
            ]
        )
        return Examples(inputs, self._labels[order])

    def joint_examples(self, part: int) -> Examples:
        """Return a part of the union of all tasks."""
        runs = [self._joint_run(run, seed, part) for run, seed in enumerate(self.seeds)]
        inputs, labels = zip(*runs, strict=True)
        return Examples(torch.stack(inputs), torch.stack(labels))

    def _joint_run(self, run: int, seed: int, part: int) -> tuple[Tensor, Tensor]:
        """Return one run's part of the union; example i of it is number i mod N of task i div N."""
        union = generator(seed, f"{self._split} union").permutation(self.tasks * self.examples)
        mine = union[part * self.examples : (part + 1) * self.examples]
        chosen = np.stack([self._chosen(seed, task) for task in range(self.tasks)])
        tasks = torch.from_numpy(mine // self.examples).to(self.device)
        images = torch.from_numpy(chosen.reshape(-1)[mine]).to(self.device)
        inputs = [
            self._images[rows].gather(1, self._permutations[run, task])
            for rows, task in zip(
                torch.split(images, _JOINT_ROWS), torch.split(tasks, _JOINT_ROWS), strict=True
            )
        ]
        return torch.cat(inputs), self._labels[images]

    def test(self, task: int, *, curve: bool = False) -> list[TestBatch]:
        """Return the images unpermuted, with the columns that their pixels have in each run."""
        self._check_task(task)
        places = self._permutations[:, task].argsort(-1)
        groups = self._curve_tests if curve else self._tests
        return [TestBatch(inputs, labels, places[:, pixels]) for inputs, labels, pixels in groups]

    def tests(self, tasks: Sequence[int]) -> Iterator[tuple[TestBatch, Mapping[int, int]]]:
        """Yield the images of as many tasks at once as leave a GPU busy, but not out of memory."""
        if self._at_once == 1 or type(self).test is not PermutedMnist.test:
            yield from super().tests(tasks)
            return
        for start in range(0, len(tasks), self._at_once):
            group = list(tasks[start : start + self._at_once])
            places = self._permutations[:, group].argsort(-1)
            for inputs, labels, pixels in self._tests:
                batch = TestBatch(inputs, labels.repeat(len(group)), places[..., pixels])
                yield batch, dict.fromkeys(group, len(labels))

    def network(self) -> MLP:
        """Return the fully connected network, 784-256-256-10."""
        return MLP((self.features, 256, 256, self.classes), tf32=self._tf32)

    def normalise(self, inputs: Tensor) -> Tensor:
        """Scale 8-bit pixels to [0, 1]."""
        return inputs.div(_WHITE)


def _shuffled(authors: np.random.RandomState) -> NDArray[np.int64]:
    pixels = np.arange(_PIXELS)
    authors.shuffle(pixels)
    return pixels


def _test_groups(
    images: Tensor, labels: Tensor, device: torch.device
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Cut test images into groups that share their empty pixels, which are left out.

    Returns inputs, labels and pixels of each group; on a GPU there is one.

    Four fifths of MNIST's pixels are zero. Sorted by their left and right edges, 250
    images need only half of the columns, and evaluation is most of a short run on a CPU.
    """
    if device.type != "cpu":
        groups = [torch.arange(len(images))]
    else:
        columns = images.view(-1, 28, 28).amax(1) > 0
        left = columns.int().argmax(1)
        right = columns.flip(1).int().argmax(1)
        order = (left * 28 - right).argsort(stable=True)
        groups = list(torch.split(order, _ROWS_ON_CPU))
    cut = []
    for group in groups:
        pixels = images[group].amax(0).nonzero().flatten()
        inputs = images[group][:, pixels].float().div_(255)
        cut.append((inputs.to(device), labels[group].to(device), pixels))
    return cut


def _checksum(_: PermutedMnistSettings) -> str:
    return hashlib.sha256(repr(sorted(mnist_checksums().items())).encode()).hexdigest()


PERMUTED_MNIST = Benchmark(
    name=_NAME,
    settings=PermutedMnistSettings,
    paper_tasks=17,
    most_examples=PermutedMnist.most_examples,
    build=PermutedMnist,
    checksum=_checksum,
    stacks=PERCEPTRONS,
)


@dataclass(frozen=True)
class Preset:
    """A benchmark in a setting of its own: so many tasks, so many examples, so large a memory.

    The paper has figures of these settings and no numbers, and gives neither the memory nor the
    learning rate. Here a memory has room for ``memory_per_class`` examples of each class of each
    task, and the methods that keep so many of each class step by ``learning_rate``.
    """

    benchmark: str
    tasks: int
    examples: int
    memory_per_class: int = 6
    learning_rate: float = 0.1
    classes: int = 10

    def settings(self, known: Collection[str], tasks: int) -> dict[str, Scalar]:
        """Return the values for a method that knows these settings, on so many tasks."""
        if "memory_size" in known:  # one pool for all classes, as large in the end
            return {"memory_size": self.memory_per_class * self.classes * tasks}
        if "memory_per_class" in known:
            return {"memory_per_class": self.memory_per_class, "learning_rate": self.learning_rate}
        return {}


PRESETS = {f"{_NAME}-{examples}": Preset(_NAME, 20, examples) for examples in (200, 400, 600)} | {
    f"many-permutations-{tasks}": Preset(_NAME, tasks, 200) for tasks in (30, 50, 70)
}
"""The paper's settings with few examples or many tasks, by name."""
