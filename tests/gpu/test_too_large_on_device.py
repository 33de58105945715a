"""On a GPU: a stack for which there is too little memory is trained in parts."""

import os

import pytest
import torch

from engram.app.runs import Store, Unit, execute
from engram.lab.protocol import run, specify
from listeners import Heard

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LIMIT = "ENGRAM_TEST_BYTES"


def run_in_little(specs, seeds, **options):
    """Run with no more of the GPU's memory than the environment says."""
    whole = torch.cuda.get_device_properties("cuda").total_memory
    torch.cuda.set_per_process_memory_fraction(int(os.environ[LIMIT]) / whole)
    return run(specs, seeds, **options)


def bytes_of(spec, seeds):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(spec, seeds, device="cuda")
    return torch.cuda.max_memory_allocated() - before


def test_a_stack_is_halved_until_it_fits(tmp_path, monkeypatch):
    spec, seeds = specify("permuted-mnist", "mega-ii", tasks=2, examples=2000), range(16)
    limit = (bytes_of(spec, [0]) + bytes_of(spec, seeds)) // 2
    monkeypatch.setenv(LIMIT, str(limit))
    heard = Heard()
    with Store(tmp_path / "store.sqlite") as store:
        failures = execute(
            [Unit(tuple((spec, seed) for seed in seeds))],
            store,
            run_in_little,
            device="cuda",
            command="engram run",
            listener=heard,
            checkpoint_every=60.0,
        )
        stored = sorted(row.seed for row in store.rows())
    assert (failures, stored) == (0, list(seeds)), heard.ends
    assert heard.cuts[0][0] == tuple(seeds)
