"""Studies: sets of runs as data, the paper's and one's own, and what of them is left to do."""

from engram.app.studies.planning import Planned, plan
from engram.app.studies.study import Runs, Study, read_study, study_names
from engram.app.studies.timings import Taken, Timings, published, taken

__all__ = [
    "Planned",
    "Runs",
    "Study",
    "Taken",
    "Timings",
    "plan",
    "published",
    "read_study",
    "study_names",
    "taken",
]
