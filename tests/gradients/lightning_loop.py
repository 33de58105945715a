"""A loop of Lightning's with the `ddp` strategy and manual optimisation: `python this FOLDER`.

Each rank leaves its weights in the folder.
"""

import sys
from pathlib import Path

import pytest
import torch
from gradient_oracles import examples, loss_on, network, sgd
from torch.utils.data import DataLoader, TensorDataset

import engram
from engram.rules import MEGA2

lightning = pytest.importorskip("lightning")  # where doctests are looked for, too
STEPS = 3


class Lifelong(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.model = network(0)
        self.mixer = None

    def configure_optimizers(self):
        return sgd(self.model)

    def training_step(self, batch, number):
        optimizer = self.optimizers()
        if self.mixer is None:
            self.mixer = engram.GradientMixer(optimizer, MEGA2())
        self.mixer.backward(loss_on(self.model, self.own(examples(10 + number, 8))), row="memory")
        self.mixer.backward(loss_on(self.model, self.own(batch)))
        self.mixer.mix()
        optimizer.step()

    def own(self, batch):
        """Return this rank's part of a batch."""
        return [tensor.chunk(self.trainer.world_size)[self.global_rank] for tensor in batch]


def train(**options):
    """Train on batches of four examples in all; return the weights, and the rank."""
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,  # every rank loads whole batches, and takes its part
        **options,
    )
    module = Lifelong()
    trainer.fit(module, DataLoader(TensorDataset(*examples(0, 4 * STEPS)), batch_size=4))
    return [parameter.detach().clone() for parameter in module.parameters()], trainer.global_rank


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained, rank = train(strategy="ddp", devices=2)
    torch.save(trained, Path(sys.argv[1]) / f"{rank}.pt")
