"""Which workers train: those of this machine, of a Ray cluster or of Slurm."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engram.app.runs.checks import resolve_device
from engram.errors import EngramError, shown, unknown

if TYPE_CHECKING:
    from engram.app.runs.executor import Executor, Listener, Unit
    from engram.app.runs.worker import Run

KINDS = ("local", "ray", "slurm")
_PACKAGES = {"ray": "ray", "slurm": "submitit"}
_MOST_WORKERS = 100_000


@dataclass(frozen=True)
class Cluster:
    """Where runs are trained, with how many workers, and what these have in common.

    ``executor`` is ``local``, ``ray`` or ``ray:ADDRESS``, ``slurm`` or ``slurm:PARTITION``.
    ``shared`` is a folder that the driver and all workers see under the same path: checkpoints lie
    in it, and Slurm needs it. ``slurm`` are options of a job, by submitit's names.
    """

    executor: str = "local"
    workers: int | None = None  # None: as many as there is room for
    gpus_per_worker: float = 0.0
    shared: Path | None = None
    ship_data: bool = False  # whether data of any size travels with the work, not small ones alone
    trust_plugins: bool = False  # whether plugin files and own networks do, for workers to run
    slurm: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of executor."""
        return self.executor.partition(":")[0]

    @property
    def where(self) -> str | None:
        """The address of the Ray cluster, or Slurm's partition, if one is given."""
        return self.executor.partition(":")[2] or None

    @property
    def is_local(self) -> bool:
        """Whether the workers are processes of this machine."""
        return self.kind == "local"

    def check(self) -> None:
        """Refuse what cannot be, and an executor whose package is not installed."""
        if self.kind not in KINDS or self.executor == "local:":
            raise unknown(
                "executor", self.executor, ["local", "ray[:ADDRESS]", "slurm[:PARTITION]"]
            )
        if self.is_local and self != Cluster(self.executor):
            raise EngramError(
                "workers, gpus-per-worker, shared, ship-data, trust-plugins and slurm are for an "
                "executor that is not local: give --executor ray or slurm."
            )
        if self.is_local and self.where:
            raise EngramError(f"executor must be local, without more, not {shown(self.executor)}.")
        if self.workers is not None and not 1 <= self.workers <= _MOST_WORKERS:
            raise EngramError(
                f"workers must be from 1 to {_MOST_WORKERS:,}, not {shown(self.workers)}."
            )
        if not 0 <= self.gpus_per_worker <= 1:
            raise EngramError(
                "gpus-per-worker must be from 0 to 1, as a run trains on one GPU at the most, not "
                f"{self.gpus_per_worker}."
            )
        if self.slurm and self.kind != "slurm":
            raise EngramError("slurm options are for the executor slurm.")
        if self.kind == "ray" and (self.where or "").startswith("//"):
            raise EngramError(
                f"{shown(self.executor)} is the address of Ray's client: give that of the cluster, "
                "such as ray:10.0.0.5:6379."
            )
        if self.kind == "slurm":
            self._check_slurm()
        package = _PACKAGES.get(self.kind)
        if package is not None and importlib.util.find_spec(package) is None:
            raise EngramError(
                f"The executor {self.kind} needs {package}: pip install "
                f'"engram-torch[{self.kind}]".'
            )

    def _check_slurm(self) -> None:
        if self.shared is None:
            raise EngramError(
                "The executor slurm needs a folder that all nodes see: give it with --shared."
            )
        if self.gpus_per_worker not in (0, 1):
            raise EngramError(
                "gpus-per-worker must be 0 or 1 on Slurm, which gives out whole GPUs, not "
                f"{self.gpus_per_worker}."
            )
        if self.workers is None:
            raise EngramError("The executor slurm needs to know how many: give --workers.")

    def device(self, name: str) -> str:
        """Return the device that the workers train on, if the user asks for ``name``."""
        if self.is_local:
            return resolve_device(name)
        usual = "cuda" if self.gpus_per_worker else "cpu"
        if name not in ("auto", usual):
            raise EngramError(
                f"device must be {usual} for workers with {self.gpus_per_worker:g} GPUs, not "
                f"{shown(name)}: --gpus-per-worker says whether they have any."
            )
        return usual

    def sized(self) -> Cluster:
        """Return the cluster with the number of its workers: on Ray, all that it has room for."""
        if self.kind != "ray" or self.workers is not None:
            return self
        from engram.app.runs.on_ray import room

        return replace(self, workers=room(self))

    def open(
        self, units: Sequence[Unit], run: Run, device: str, listener: Listener
    ) -> AbstractContextManager[Executor]:
        """Return the executor, which is to train these units; an executor of one's own goes here.

        It is a context: workers begin in it, and none of them is left when it ends.
        """
        if self.is_local or not units:
            from engram.app.runs.pool import WorkerPool

            return WorkerPool(run, device)
        from engram.app.runs.remote import remote_pool

        return remote_pool(self, units, run, device, listener)


LOCAL = Cluster()
