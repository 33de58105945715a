"""The paper's protocol: one pass, three tasks to tune on and seventeen to train on."""

from engram.protocol._build import build_stream
from engram.protocol._checkpoint import Checkpoint, Paused
from engram.protocol._device import processor
from engram.protocol._lesson import Lesson, lesson
from engram.protocol._precision import prepare_workspace
from engram.protocol._record import Outcome
from engram.protocol._run import run
from engram.protocol._settings import SettingHelp, settings_help
from engram.protocol._spec import Spec, specify
from engram.protocol._stack import stack_key, stacking
from engram.protocol._trainer import Progress
from engram.protocol._tuning import tuned_settings, tuning_specs

__all__ = [
    "Checkpoint",
    "Lesson",
    "Outcome",
    "Paused",
    "Progress",
    "SettingHelp",
    "Spec",
    "build_stream",
    "lesson",
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
