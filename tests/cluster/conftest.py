"""A real Ray cluster on this machine: a head and two nodes, all of it on the loopback."""

import importlib.util
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes_of import OURS, alive

HERE = Path(__file__).parent
INSTALLED = all(map(importlib.util.find_spec, ("ray", "submitit")))
collect_ignore_glob = [] if INSTALLED else ["test_*.py"]  # `make test-cluster` has them

ENVIRONMENT = {
    **OURS,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # where it is not to be reached, it is 127.0.0.1
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "10000",  # one that is killed is refused at once
    "RAY_health_check_failure_threshold": "4",
    "RAY_memory_monitor_refresh_ms": "0",  # others may use this machine's memory
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(
        [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    ),
}


@contextmanager
def place_of_its_own():
    """Yield a folder for what Ray writes, with a short name: there are sockets in it.

    It is removed with what is in it, and so are those of tests that were killed.
    """
    place = Path(f"/tmp/engram-ray-{os.getpid()}")
    for left in place.parent.glob("engram-ray-*"):
        if not alive(int(left.name.rpartition("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    place.mkdir(0o700)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_cluster():
    """A cluster of two nodes with two CPUs each, beside a head that trains nothing."""
    with place_of_its_own() as place, pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "RAY_TMPDIR": str(place)}.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        started = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        started.engram_nodes = []
        try:
            yield with_two_nodes(started)
        finally:
            started.shutdown()


def with_two_nodes(cluster):
    """Return the cluster with both of its nodes: a test may have killed one."""
    while len(cluster.engram_nodes) < 2:
        cluster.engram_nodes.append(cluster.add_node(num_cpus=2))
    return cluster


@pytest.fixture
def two_nodes(ray_cluster):
    """The cluster with both of its nodes."""
    return with_two_nodes(ray_cluster)


@pytest.fixture
def table(tmp_path):
    """A table of three tasks whose runs take about a second."""
    lines = ["a,b,c,part,kind"]
    for row in range(1800):
        values = [((row * step) % 97) / 97 for step in (31, 57, 73)]
        kind = "high" if values[0] + values[1] > 1 else "low"
        lines.append(",".join([*(f"{value:.4f}" for value in values), str(row % 3), kind]))
    path = tmp_path / "numbers.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
