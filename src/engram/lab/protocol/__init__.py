"""The paper's protocol: one pass, three tasks to tune on and seventeen to train on."""

from engram.lab.networks import NetworkSource, network_source
from engram.lab.protocol.checkpoint import Checkpoint, Paused
from engram.lab.protocol.device import prepare_workspace, processor
from engram.lab.protocol.records import Outcome
from engram.lab.protocol.session import BenchmarkSession, benchmark_session
from engram.lab.protocol.spec import (
    SettingHelp,
    Spec,
    settings_help,
    specify,
    stack_key,
    stacking,
)
from engram.lab.protocol.trainer import (
    Progress,
    build_method,
    build_stream,
    check_network,
    run,
)
from engram.lab.protocol.tuning import tuned_settings, tuning_specs

__all__ = [
    "BenchmarkSession",
    "Checkpoint",
    "NetworkSource",
    "Outcome",
    "Paused",
    "Progress",
    "SettingHelp",
    "Spec",
    "benchmark_session",
    "build_method",
    "build_stream",
    "check_network",
    "network_source",
    "prepare_workspace",
    "processor",
    "run",
    "settings_help",
    "specify",
    "stack_key",
    "stacking",
    "tuned_settings",
    "tuning_specs",
]
