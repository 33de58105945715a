"""The paper's protocol: one pass, three tasks to tune on and seventeen to train on."""

from engram.protocol._record import Outcome
from engram.protocol._spec import SettingHelp, Spec, settings_help, specify
from engram.protocol._trainer import Progress, run, stacking
from engram.protocol._tuning import tuned_settings, tuning_specs

__all__ = [
    "Outcome",
    "Progress",
    "SettingHelp",
    "Spec",
    "run",
    "settings_help",
    "specify",
    "stacking",
    "tuned_settings",
    "tuning_specs",
]
