"""How to read the page."""

from __future__ import annotations

from engram.report.html._element import Markup, element
from engram.report.projections import TOO_LONG_RULE

_ENTRIES = (
    (
        "Numbers",
        "Mean ± population standard deviation over the seeds; one seed tells no spread. Average "
        "accuracy is the mean over all tasks after the last one, in percent; forgetting is how "
        "much accuracy on earlier tasks was lost since its best, and LCA the area under the "
        "learning curve over the first ten mini-batches of a task, both as fractions. The best of "
        "a column is bold.",
    ),
    (
        "The paper's",
        "They stand beside runs of the paper's own setting only, in whatever precision. Δ/σ is "
        "ours minus the paper's in the paper's standard deviations over its own seeds, which is no "
        "test; more than 2 is underlined. In the bars a diamond is the paper's number; those of "
        "stand-ins have none.",
    ),
    (
        "Stand-ins",
        "Where the paper's data, or the weights it starts from, could not be had, others stand in. "
        "Such results are named so wherever they are shown, and the paper's numbers beside them "
        "are of the real thing: the order of the methods can be compared, their heights cannot. A "
        "claim that says by how much is judged by the stand-in's own numbers, as its mark says. "
        "Results on any other data, called other-…, have no number of the paper's beside them.",
    ),
    (
        "How sure",
        "Methods are compared seed by seed, for equal seeds have equal tasks and examples: the "
        "mean difference and its 95 % interval by Student's t. One is ahead where the whole "
        "interval is above 0; where 0 is in it the seeds do not settle it, and more of them may. "
        "Nothing is corrected for the many comparisons.",
    ),
    (
        "Claims",
        "A claim's number is held where the whole interval lies where the claim puts it, not held "
        "where all of it lies beyond a bound, and otherwise within chance. A claim is held if all "
        "of its numbers are, and not held if one is not. Words such as well above, close or much "
        "slower became bounds, which are ours and shown. Only runs with a setting's presets speak "
        f"of it. {TOO_LONG_RULE}",
    ),
    (
        "Cost",
        "Seconds are the mean wall-clock time of a run, evaluation included, as recorded when it "
        "was made; runs that are stacked on a GPU share theirs, and are one measurement however "
        "many seeds they have. Compare them with care where the dates or versions differ. "
        "Memory is what must be kept for the next step.",
    ),
    (
        "Spec hash",
        "Ten digits of the sha256 of the addresses of a line's runs, sorted, one a line; an "
        "address is made of everything that can change a result but the device and the versions.",
    ),
)
_OF_THE_PAPER = ("The paper's", "Stand-ins", "Claims")


def guide(*, paper: bool) -> Markup:
    """Return the explanations, closed until asked for; the paper's where it is on the page."""
    entries = [
        [element("dt", name), element("dd", text)]
        for name, text in _ENTRIES
        if paper or name not in _OF_THE_PAPER
    ]
    return element(
        "details", element("summary", "How to read this"), element("dl", entries), id="guide"
    )
