"""Studies: sets of runs as data, the paper's and one's own, and what of them is left to do."""

from engram.app.studies.budgets import Cell, against, cells, markdown, write_table
from engram.app.studies.ingredients import Ablation, ablations
from engram.app.studies.planning import Planned, keep_choice, keep_choices, plan, search_result
from engram.app.studies.study import Runs, Study, read_study, study_names
from engram.app.studies.timings import Taken, Timings, published, taken

__all__ = [
    "Ablation",
    "Cell",
    "Planned",
    "Runs",
    "Study",
    "Taken",
    "Timings",
    "ablations",
    "against",
    "cells",
    "keep_choice",
    "keep_choices",
    "markdown",
    "plan",
    "published",
    "read_study",
    "search_result",
    "study_names",
    "taken",
    "write_table",
]
