"""Reports: summaries over seeds, tables, the plot and the page, beside the paper's numbers."""

from engram.app.paper import Printed, printed
from engram.app.report.claims import Claim, Part, Verdict, judge
from engram.app.report.comparison import Comparison, compare, differences
from engram.app.report.estimates import Estimate, holm, two_sided_p
from engram.app.report.measures import Statistic, measure
from engram.app.report.paper_defaults import PaperDefaults, network_label, value_text
from engram.app.report.performance import (
    SPEED_TABLES,
    save_performance,
    speed_markdown,
    speed_table,
)
from engram.app.report.plot import save_plot
from engram.app.report.stand_ins import StandIn, read_stand_ins, stand_in
from engram.app.report.summary import (
    Setting,
    Summary,
    as_json,
    failure_message,
    majority_baseline,
    remarks,
    results_table,
    summarise,
)
from engram.app.report.tensorboard import check_log_folder, check_tensorboard, write_scalars

__all__ = [
    "SPEED_TABLES",
    "Claim",
    "Comparison",
    "Estimate",
    "PaperDefaults",
    "Part",
    "Printed",
    "Setting",
    "StandIn",
    "Statistic",
    "Summary",
    "Verdict",
    "as_json",
    "check_log_folder",
    "check_tensorboard",
    "compare",
    "differences",
    "failure_message",
    "holm",
    "judge",
    "majority_baseline",
    "measure",
    "network_label",
    "printed",
    "read_stand_ins",
    "remarks",
    "results_table",
    "save_performance",
    "save_plot",
    "speed_markdown",
    "speed_table",
    "stand_in",
    "summarise",
    "two_sided_p",
    "value_text",
    "write_scalars",
]
