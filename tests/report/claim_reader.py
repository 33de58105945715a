"""A store of the paper's own accuracies, and a claim of the paper's judged by some rows."""

from paper_world import CLAIMS, DEFAULTS, PAPER, make_row

from engram.app.report import judge, summarise

OFF = (-0.002, 0.001, 0.001)  # three seeds around a mean, alike in every method


def judged(rows):
    claims = judge(summarise(rows), DEFAULTS)
    assert [claim.text for claim in claims] == CLAIMS
    return claims


def find(rows, beginning):
    """The claim that begins so."""
    return next(claim for claim in judged(rows) if claim.text.startswith(beginning))


def papers_rows(without=()):
    """Every method of the paper's tables with the paper's average accuracy, without some."""
    return [
        make_row(method, seed, benchmark, final=numbers["average_accuracy"]["mean"] / 100 + off)
        for benchmark, methods in PAPER["results"].items()
        for method, numbers in methods.items()
        if (benchmark, method) not in without
        for seed, off in enumerate(OFF)
    ]
