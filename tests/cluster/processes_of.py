"""Processes of workers on this machine, as the system lists them."""

import os
import time
from pathlib import Path


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def alive(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pids():
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


OURS = {"ENGRAM_TEST_CLUSTER": str(os.getpid())}
"""What the environment of our cluster's processes has, and that of no other on this machine."""


def ours(pid):
    ((name, value),) = OURS.items()
    try:
        return f"{name}={value}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def agents():
    """Return the actors of our cluster that hold workers."""
    return [pid for pid in pids() if command(pid).startswith("ray::RayAgent") and ours(pid)]


def trainers(holders):
    """Return the processes that train, by who holds them."""
    return [pid for pid in pids() if parent(pid) in holders and "spawn_main" in command(pid)]


def until(condition, seconds=180.0):
    """Wait until a condition holds, on a machine that may be busy; return what it has come to."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found
