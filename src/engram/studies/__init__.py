"""Studies: sets of runs as data, the paper's and one's own, and what of them is left to do."""

from engram.studies._estimate import Timings
from engram.studies._plan import Planned, plan
from engram.studies._published import published, taken
from engram.studies._read import read_study, study_names
from engram.studies._study import Runs, Study

__all__ = [
    "Planned",
    "Runs",
    "Study",
    "Timings",
    "plan",
    "published",
    "read_study",
    "study_names",
    "taken",
]
