"""Lifelong learning on several processes: DistributedDataParallel or FSDP2, saved and resumed.

Every rank reads its own part of the stream and keeps a memory of it; gradients and losses are
averaged, so that all take the same step. A checkpoint is the model and the optimiser, which torch
writes in parts, and a file of each rank's memory. It may be resumed by another number of ranks:
torch deals the parts out again, and the memories' examples go to the ranks in turn. A reservoir
that was dealt anew counts from what it holds: what comes later takes more of its room.

    torchrun --nproc-per-node 2 examples/distributed.py --folder run --steps 100
    torchrun --nproc-per-node 4 examples/distributed.py --folder run --steps 200  # goes on
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import engram
from engram.memory import Memory, Reservoir
from engram.rules import MEGA2

CLASSES, FEATURES, WIDTH = 4, 32, 64
REMEMBERED = 400  # examples, by all ranks together
BATCH = 32  # examples of a step, of all ranks together
TASK = 50  # steps


def build(kind: str, device: torch.device) -> nn.Module:
    """Return the model, the same on every rank: replicated, or in parts."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    model.to(device)
    if kind == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in (model[0], model[2]):  # of a transformer: each of its blocks
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def batch_of(step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return this rank's part of a step's batch; each task has centres of its own."""
    centres = torch.randn(
        CLASSES, FEATURES, generator=torch.Generator().manual_seed(1000 + step // TASK)
    )
    draws = torch.Generator().manual_seed(step)
    labels = torch.randint(CLASSES, (BATCH,), generator=draws)
    inputs = centres[labels] + torch.randn(BATCH, FEATURES, generator=draws)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return inputs[rank::ranks].to(device), labels[rank::ranks].to(device)


def new_memory() -> Memory:
    """Return an empty memory for this rank."""
    return Memory(Reservoir(REMEMBERED // dist.get_world_size()))


def save(folder: Path, model: nn.Module, optimizer: Optimizer, memory: Memory, step: int) -> None:
    """Write a checkpoint; the last line makes it the one to resume from."""
    place = folder / f"step-{step}"
    weights, moments = get_state_dict(model, optimizer)
    state_dict_saver.save({"model": weights, "optimizer": moments}, checkpoint_id=place)
    memory.save(place / f"memory-{dist.get_rank()}.safetensors")
    dist.barrier()
    if dist.get_rank() == 0:
        told = {"step": step, "ranks": dist.get_world_size()}
        (folder / "latest.part").write_text(json.dumps(told), "utf-8")
        (folder / "latest.part").replace(folder / "latest.json")
    dist.barrier()


def resume(folder: Path, model: nn.Module, optimizer: Optimizer) -> tuple[Memory, int]:
    """Return the memory and the number of steps taken; set the model and the optimiser."""
    if not (folder / "latest.json").exists():
        return new_memory(), 0
    told = json.loads((folder / "latest.json").read_text("utf-8"))
    place = folder / f"step-{told['step']}"
    weights, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments}
    state_dict_loader.load(state, checkpoint_id=place)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    files = [place / f"memory-{rank}.safetensors" for rank in range(told["ranks"])]
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if len(files) == ranks:
        return Memory.load(files[rank]), told["step"]
    memory, first = new_memory(), 0
    for file in files:  # dealt out: the examples of all, in turn
        held = Memory.load(file)
        slots = [*range((rank - first) % ranks, len(held), ranks)]
        first = (first + len(held)) % ranks
        if slots:
            sample = held.read(slots)
            memory.add(sample.batch, tasks=sample.tasks)
    return memory, told["step"]


def train(folder: Path, kind: str, steps: int, every: int) -> None:
    """Train up to a number of steps, from the last checkpoint where there is one."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    model = build(kind, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    folder.mkdir(parents=True, exist_ok=True)
    memory, done = resume(folder, model, optimizer)
    learner = engram.Learner(model, optimizer, MEGA2(), memory, reference_batch=64)
    mix = None
    for step in range(done, steps):
        mix = learner.observe(*batch_of(step, device), task=step // TASK)
        if (step + 1) % every == 0 or step + 1 == steps:
            learner.settle()
            save(folder, model, optimizer, memory, step + 1)
    if dist.get_rank() == 0 and mix is not None:
        losses = ", ".join(f"{loss:.6f}" for loss in mix.losses.tolist())
        print(f"step {steps}: losses {losses}; {len(memory)} examples on rank 0")


def main() -> None:
    """Read the options, and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoints")
    parser.add_argument("--sharding", choices=["ddp", "fsdp2"], default="fsdp2")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50, help="steps from one save to the next")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        train(options.folder, options.sharding, options.steps, options.every)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
