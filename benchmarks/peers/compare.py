"""Engram's steps and Avalanche's A-GEM on the same work, side by side.

One CPU thread each: a 784-256-256-10 network in float32, batches of 10, reference batches of 256
from a memory of 16 finished tasks of 250 examples; images of noise, or the seventeenth task of
Permuted MNIST in both. Avalanche runs in processes and an environment of its own; all take turns
over pipes, so that whatever else the machine does disturbs them alike, and count their own
thread's CPU time. docs/performance.md says what is in each number.

    make peers        # makes .venv-peers and runs this
    python benchmarks/peers/compare.py --peer-python .venv-peers/bin/python [--json PATH]
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import torch
from rich.console import Console
from torch.utils.data import DataLoader, TensorDataset

from engram.app import report
from engram.lab.bench import (
    BATCH,
    Batches,
    device_name,
    examples,
    filled_memory,
    learner,
    median,
    method_step,
    products_alone,
    ratio,
    take_turns,
    timed,
)
from engram.rules import AGEM, MEGA2

HERE = Path(__file__).parent
TURN = 10  # steps
BOUND = 2.2  # times as fast per step as a whole iteration of Avalanche's
USUAL, QUIET, LEAN, MNIST = (  # how Avalanche is called, from what most would write to the fastest
    "with default metrics",
    "without metrics",
    "without metrics, lean data",
    "its PermutedMNIST",
)
FLAGS = {
    USUAL: [],
    QUIET: ["--quiet"],
    LEAN: ["--quiet", "--datasets"],
    MNIST: ["--quiet", "--mnist", "{mnist}"],
}
READY, BARE = "lean, ready batch", "lean, both batches ready"
LOADED, MEGA, AGEM_STEP, RUN, FLOOR = (
    "MEGA-II, DataLoader",
    "MEGA-II, ready batch",
    "A-GEM, ready batch",
    "MEGA-II of a run",
    "products alone",
)
PAIRS = [  # each of ours beside what does as much
    (LOADED, USUAL),
    (LOADED, QUIET),
    (LOADED, LEAN),
    (RUN, MNIST),
    (RUN, LEAN),
    (FLOOR, LEAN),
    (MEGA, READY),
    (AGEM_STEP, READY),
    (MEGA, BARE),
]


class Peer:
    """The other process: asked for a turn, it answers with the seconds of its steps."""

    def __init__(self, python: Path, flags: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [python, HERE / "avalanche_peer.py", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions: dict[str, str] = self._answer()
        self.last: dict[str, float] = {}

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def turn(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{TURN}\n")
        self._process.stdin.flush()
        self.last = self._answer()
        return self.last["whole"]

    def _answer(self) -> Any:  # noqa: ANN401
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("The peer has ended; what it said is above.")
        return json.loads(line)


def loaded() -> Batches:
    """Yield batches as Avalanche loads its own: example by example, in shuffled order."""
    data = TensorDataset(*examples(4_000))
    while True:
        yield from DataLoader(data, BATCH, shuffle=True)


def unpack_mnist(folder: Path) -> None:
    """Put the images that Engram ships where Avalanche looks for them."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for file in resources.files("engram.lab.benchmarks").joinpath("mnist").iterdir():
        if file.name.endswith(".gz"):
            (raw / file.name.removesuffix(".gz")).write_bytes(gzip.decompress(file.read_bytes()))


def measure(peers: Mapping[str, Peer], blocks: int, rounds: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    memory, lean = filled_memory(), peers[LEAN]
    with ExitStack() as stack:
        candidates = {
            **{name: peer.turn for name, peer in peers.items()},
            READY: lambda: lean.last["step"],  # of the turn just taken
            BARE: lambda: lean.last["arithmetic"],
            LOADED: timed(learner(MEGA2(), memory, loaded()), TURN),
            MEGA: timed(learner(MEGA2(), memory), TURN),
            AGEM_STEP: timed(learner(AGEM(), memory), TURN),
            RUN: timed(method_step("mega-ii", 17, stack), TURN),
            FLOOR: timed(products_alone(), TURN),
        }
        with torch.enable_grad():
            times = take_turns(candidates, blocks, rounds)
    return [
        {
            "candidate": ours,
            "milliseconds": 1e3 * median(times, ours),
            "beside": theirs,
            "beside_milliseconds": 1e3 * median(times, theirs),
            **ratio(times, theirs, ours),
            "bound": BOUND if theirs in peers and ours != FLOOR else None,
        }
        for ours, theirs in PAIRS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Engram's steps beside Avalanche's A-GEM.")
    parser.add_argument("--peer-python", type=Path, required=True, help="of its environment")
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=6, help="rounds in a block")
    parser.add_argument("--json", type=Path, help="where to save the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        mnist = stack.enter_context(TemporaryDirectory())
        unpack_mnist(Path(mnist))
        peers = {
            name: stack.enter_context(
                Peer(options.peer_python, [flag.format(mnist=mnist) for flag in flags])
            )
            for name, flags in FLAGS.items()
        }
        rows = measure(peers, options.blocks, options.rounds)
        versions = peers[LEAN].versions
    Console(width=110).print(report.speed_table("peers", rows))
    if options.json:
        report.save_performance(
            options.json,
            {"peers": rows},
            device=device_name("cpu"),
            command="make peers",
            versions=versions,
        )


if __name__ == "__main__":
    main()
