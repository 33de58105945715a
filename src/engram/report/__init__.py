"""Reports: summaries over seeds, tables, the plot and the page, beside the paper's numbers."""

from engram.paper import Printed, printed
from engram.report._chance import told_chance
from engram.report._claims import judge
from engram.report._comparison import Comparison, compare
from engram.report._failures import told_failures
from engram.report._json import as_json
from engram.report._measures import Statistic, measure
from engram.report._performance import save_performance
from engram.report._plot import save_plot
from engram.report._setting import Setting
from engram.report._settings import value_text
from engram.report._sheets import sheet_table
from engram.report._stand_ins import StandIn, stand_in
from engram.report._standard import Standard
from engram.report._student import two_sided_p
from engram.report._summary import Summary, summarise
from engram.report._table import results_table
from engram.report._tensorboard import check_tensorboard, write_scalars
from engram.report._verdict import Claim, Part, Verdict

__all__ = [
    "Claim",
    "Comparison",
    "Part",
    "Printed",
    "Setting",
    "StandIn",
    "Standard",
    "Statistic",
    "Summary",
    "Verdict",
    "as_json",
    "check_tensorboard",
    "compare",
    "judge",
    "measure",
    "printed",
    "results_table",
    "save_performance",
    "save_plot",
    "sheet_table",
    "stand_in",
    "summarise",
    "told_chance",
    "told_failures",
    "two_sided_p",
    "value_text",
    "write_scalars",
]
