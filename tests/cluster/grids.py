"""A grid of short runs, and what is left of it to compare."""

from pathlib import Path

from engram.app.runs import LOCAL, Store, execute, plan_units
from engram.lab import protocol
from listeners import Heard

METHODS = ("van", "a-gem", "mega-ii")


def grid(table, methods=METHODS, examples=None):
    settings = {"target": "kind", "task": "part"}
    return [
        protocol.specify(f"table:{table}", method, examples=examples, overrides=settings)
        for method in methods
    ]


def trained(specs, seeds, path, *, cluster=LOCAL, heard=None, every=0.0):
    """Train a grid; return what the store has by address, and how many rows, and failures."""
    heard = heard or Heard()
    with Store(Path(path)) as store:
        units = plan_units(specs, range(seeds), store, device="cpu")
        failures = execute(
            units,
            store,
            protocol.run,
            device="cpu",
            command="engram run",
            listener=heard,
            checkpoint_every=every,
            cluster=cluster,
        )
        return compared(store.rows()), len(store.rows()), failures


def compared(rows):
    return {row.address: (row.seed, row.identity, row.outcome, row.device) for row in rows}
