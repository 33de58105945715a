"""Lifelong learning in a training loop of your own, with your own model, batches and loss.

A classifier of sensor readings is trained at one site, then at another where every class looks
different. Its batches are dicts; its loss weighs each example by how much its label is trusted,
and smooths the labels. Plain fine-tuning forgets the first site. With a memory of 100 readings and
three lines more, the same loop keeps it. A penalty remembers no reading at all and forgets less
than fine-tuning. Both can be had together.

    python examples/own_loop.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import engram
from engram.memory import Memory, Reservoir
from engram.penalties import EWC
from engram.rules import MEGA2

CLASSES, FEATURES = 4, 32
STRENGTH = 1.0  # of the penalty
Batch = dict[str, Tensor]


class Classifier(nn.Module):
    """The user's own model: it takes a batch, not a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits, ``[examples, classes]``."""
        logits: Tensor = self.layers(batch["reading"])
        return logits


def site(seed: int, count: int) -> Batch:
    """Return readings of one site: noise around a centre of each class, the site's own."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    label = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randn(count, FEATURES, generator=generator)
    trust = 0.5 + torch.rand(count, generator=generator)
    return {"reading": centres[label] + noise, "label": label, "trust": trust}


def losses(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the loss to differentiate, and the plain one that tells how well a batch is known."""
    logits = model(batch)
    smooth = cross_entropy(logits, batch["label"], reduction="none", label_smoothing=0.1)
    plain = cross_entropy(logits, batch["label"])
    return (batch["trust"] * smooth).mean(), plain


def train(sites: list[Batch], *, remember: bool = False, penalise: bool = False) -> nn.Module:
    """Train in one pass over each site, one site after the other."""
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mixer = engram.GradientMixer(optimizer, MEGA2())
    memory = Memory(Reservoir(100))
    penalty = EWC(STRENGTH)
    for data in sites:
        for start in range(0, len(data["label"]), 10):
            batch = {name: tensor[start : start + 10] for name, tensor in data.items()}
            loss, value = losses(model, batch)
            mixer.backward(loss, value=value)
            if remember and (past := memory.sample(64)) is not None:
                past_loss, past_value = losses(model, past.batch)
                mixer.backward(past_loss, row="memory", value=past_value)
            mixer.mix()
            if penalise:
                penalty.step(optimizer)  # optimizer.step(), with important weights held in place
            else:
                optimizer.step()
            memory.add(batch)
        if penalise:
            penalty.end_task()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, data: Batch) -> float:
    """Return the share of readings that are classified rightly."""
    return float((model(data).argmax(-1) == data["label"]).float().mean())


def main() -> None:
    """Train in each way on both sites, and print what is left of the first."""
    sites = [site(seed, 2500) for seed in (1, 2)]
    training = [{name: tensor[:2000] for name, tensor in data.items()} for data in sites]
    held_out = [{name: tensor[2000:] for name, tensor in data.items()} for data in sites]
    print("accuracy          first site   second site")
    ways = {
        "fine-tuning": {},
        "with a penalty": {"penalise": True},
        "with a memory": {"remember": True},
        "with both": {"remember": True, "penalise": True},
    }
    for name, options in ways.items():
        model = train(training, **options)
        first, second = (accuracy(model, data) for data in held_out)
        print(f"{name:<18}{first:10.1%}{second:14.1%}")


if __name__ == "__main__":
    main()
