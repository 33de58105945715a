"""Pretrain the network of Split CUB on small images, where ImageNet's checkpoint cannot be had.

    python examples/pretrain.py FOLDER WEIGHTS.safetensors

FOLDER holds ``train_images.npy`` (RGB of 8 bits, [examples, side, side, 3]), ``train_labels.npy``
(int64, from 0) and the same two of ``val``, for example TinyImageNet's. The weights are written
under the public ResNet-18 checkpoint's names, beside them the recipe and the accuracy on ``val``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from engram.lab.networks import ResNet
from engram.lab.plan import generator

MEANS = (103.94, 116.78, 123.68)  # what Split CUB subtracts from red, green and blue


@dataclass(frozen=True)
class Recipe:
    """SGD with Nesterov's momentum; the learning rate rises evenly, then falls like a cosine."""

    epochs: int = 30
    limit_seconds: float = 600  # where time is short, the learning rate moves on with it
    batch_size: int = 512
    learning_rate: float = 0.4  # at its height
    rising: float = 0.2  # share of the training until then
    momentum: float = 0.9
    weight_decay: float = 5e-4  # norms and biases have none
    label_smoothing: float = 0.1
    shift: int = 8  # pixels that an image is moved by at the most

    def rate(self, progress: float) -> float:
        """Return the learning rate after this share of the training."""
        fallen = max(0, progress - self.rising) / (1 - self.rising)
        return self.learning_rate * min(progress / self.rising, math.cos(fallen * math.pi / 2) ** 2)


def shifted(images: Tensor, shift: int, source: torch.Generator) -> Tensor:
    """Return images moved by up to ``shift`` pixels, reflected at the edges, and half mirrored."""
    each, places = (torch.arange(size, device=images.device) for size in images.shape[:2])
    drawn = torch.rand(3, len(images), 1, 1, generator=source, device=images.device)
    down, right = (drawn[:2] * (2 * shift + 1)).long() - shift
    lines = down + places[:, None], right + torch.where(drawn[2] < 0.5, places, places.flip(0))
    rows, columns = (places[-1] - (places[-1] - line.abs()).abs() for line in lines)
    return images[each[:, None, None], rows, columns]


class Pretraining:
    """A network in training: its weights and running averages by name, and their optimiser.

    Networks are functions of flat vectors, one for each run; here is one run, and what has a name
    is a view of its vectors.
    """

    def __init__(self, network: ResNet, recipe: Recipe, device: torch.device) -> None:
        self.network, self.recipe, self.means = network, recipe, torch.tensor(MEANS, device=device)
        self.flat = network.initialise(generator(0, "parameters")).to(device)[None]  # [1, d]
        self.buffers = network.initial_buffers(self.flat)
        self.weights = network.named_parameters(self.flat[0])
        self.averages = network.named_buffers(self.buffers[0])
        self.gradient = torch.zeros_like(self.flat)
        for name, view in network.named_parameters(self.gradient[0]).items():
            self.weights[name].grad = view
        matrices = [weight for weight in self.weights.values() if weight.dim() > 1]
        vectors = [weight for weight in self.weights.values() if weight.dim() == 1]
        self.optimizer = torch.optim.SGD(vectors, momentum=recipe.momentum, nesterov=True)
        self.optimizer.add_param_group({"params": matrices, "weight_decay": recipe.weight_decay})

    def images(self, pixels: Tensor) -> Tensor:
        """Return [1, B, 3, side, side]. A GPU puts the channels last again, a CPU must not."""
        return (pixels - self.means).permute(0, 3, 1, 2).contiguous()[None]

    def step(self, pixels: Tensor, labels: Tensor, rate: float) -> Tensor:
        """Learn from a batch and return its loss; nothing is read back from the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        logits, tape = self.network.forward(self.flat, self.images(pixels), self.buffers)
        logits.requires_grad_()
        loss = cross_entropy(logits[0], labels, label_smoothing=self.recipe.label_smoothing)
        (outer,) = torch.autograd.grad(loss, logits)
        self.network.backward(self.flat, tape, outer, self.gradient[None])
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def top_1(self, images: list[Tensor]) -> float:
        """Return the share of images that are classified rightly, by the running averages."""
        found = [
            self.network.predict(self.flat, self.images(pixels), None, self.buffers)[0].argmax(-1)
            for pixels in torch.split(images[0], self.recipe.batch_size)
        ]
        return float((torch.cat(found) == images[1]).float().mean())

    def train(self, images: list[Tensor], held_out: list[Tensor]) -> float:
        """Train on pixels and labels; print the accuracy after each epoch, return the last one."""
        recipe, (stored, classes) = self.recipe, images
        source = torch.Generator(classes.device).manual_seed(0)
        started, batches = time.monotonic(), max(1, len(classes) // recipe.batch_size)
        for epoch in range(recipe.epochs):
            order = torch.randperm(len(classes), generator=source, device=classes.device)
            for place, chosen in enumerate(torch.split(order, recipe.batch_size)[:batches]):
                spent = (time.monotonic() - started) / recipe.limit_seconds
                progress = max((epoch + place / batches) / recipe.epochs, spent)
                if progress >= 1:
                    return self.top_1(held_out)
                pixels = shifted(stored[chosen], recipe.shift, source)
                loss = self.step(pixels, classes[chosen], recipe.rate(progress))
            top_1, seconds = self.top_1(held_out), time.monotonic() - started
            print(f"epoch {epoch + 1}: loss {loss:.3f}, top-1 {top_1:.2%}, {seconds:.0f} s")
        return self.top_1(held_out)

    def save(self, path: Path, **story: object) -> str:
        """Write weights and running averages, with their story as JSON; return the SHA-256."""
        story |= {"recipe": asdict(self.recipe), "date": datetime.now(UTC).date().isoformat()}
        named = (self.weights | self.averages).items()
        contiguous = torch.contiguous_format
        tensors = {name: view.clone(memory_format=contiguous) for name, view in named}
        save_file(tensors, path, {"pretraining": json.dumps(story)})
        return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Train, save, print the accuracy and the checksum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--epochs", type=int, default=Recipe.epochs)
    parser.add_argument("--limit-seconds", type=float, default=Recipe.limit_seconds)
    options = parser.parse_args()
    options.weights.parent.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    files = [f"{split}_{kind}.npy" for split in ("train", "val") for kind in ("images", "labels")]
    data = [torch.from_numpy(np.load(options.folder / file)).to(device) for file in files]
    classes, half = int(data[1].max()) + 1, device.type == "cuda"
    network = ResNet(classes, 64, large_images=True, shortcut_norm=False, autocast=half)
    state = Pretraining(network, Recipe(options.epochs, options.limit_seconds), device)
    top_1 = state.train(data[:2], data[2:])
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(f"top-1 {top_1:.2%}, sha256 {state.save(options.weights, top_1=top_1, device=name)}")


if __name__ == "__main__":
    main()
