"""Reports: summaries over seeds, tables, the plot and pages, beside the paper's numbers."""

from engram.report._blocks import fill
from engram.report._book import write_book
from engram.report._comparison import Comparison, compare
from engram.report._excerpt import excerpt
from engram.report._failures import told_failures
from engram.report._json import as_json
from engram.report._measures import Statistic, measure
from engram.report._page import GENERATED, results_page
from engram.report._paper import Printed, Standard, printed
from engram.report._plot import save_plot
from engram.report._student import two_sided_p
from engram.report._summary import Setting, Summary, summarise
from engram.report._table import results_table

__all__ = [
    "GENERATED",
    "Comparison",
    "Printed",
    "Setting",
    "Standard",
    "Statistic",
    "Summary",
    "as_json",
    "compare",
    "excerpt",
    "fill",
    "measure",
    "printed",
    "results_page",
    "results_table",
    "save_plot",
    "summarise",
    "told_failures",
    "two_sided_p",
    "write_book",
]
