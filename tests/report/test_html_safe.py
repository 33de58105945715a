"""The page is whole, and nothing in a store can break it or reach out of it."""

import base64
import hashlib
import re
from html import unescape

import paper_world
import pytest
from page_reader import report
from paper_world import CLAIMS, DEFAULTS, make_row

from engram.app.report import summarise
from engram.app.report.html import report_page, write_report
from engram.app.runs import Store
from engram.errors import EngramError
from engram.lab import protocol

NASTY = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)> \"'&$x_1$ %d \\end{x} | ` "
    "{{ 7 * 7 }} {% if %} {#"
)


@pytest.fixture
def nasty_rows():
    return [
        make_row(
            method,
            seed,
            device=NASTY,
            command=NASTY,
            failure=NASTY if seed == 2 else None,
            trick=NASTY if method == "van" else "plain",
            facts={NASTY: NASTY},
        )
        for method in ("van", "a-gem", "mega-ii")
        for seed in range(3)
    ]


def test_texts_of_rows_are_shown_as_they_are_and_change_nothing(nasty_rows):
    page, calm = (
        report(nasty_rows),
        report([make_row(m, s) for m in ("van", "a-gem") for s in range(3)]),
    )
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in calm.tags} | {
        "ul",
        "li",
        "article",
        "h3",
        "b",
        "dl",
    }
    assert len(page.scripts) == 2
    assert page.scripts[1] == calm.scripts[1]
    assert not [key for _, found in page.tags for key in found if key.startswith("on")]
    assert NASTY in page.words
    lines = page.data["permuted-mnist-17x55000"]["lines"]
    assert lines[0]["name"] == f"VAN trick={NASTY}"
    assert page.tables["Permuted MNIST, 17 tasks of 55,000 examples"][2][-2] == NASTY


def test_the_embedded_data_cannot_be_ended(nasty_rows):
    text = report_page(summarise(nasty_rows), DEFAULTS, "figures")
    block = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert "<" not in block
    assert "NaN" not in block


def test_copies_of_tables_are_escaped_for_their_language():
    rows = [make_row("van", 0, trick=trick) for trick in (r"a_b & 50 % \x{}", "plain")]
    assert r"trick=a\_b \& 50 \% \textbackslash{}x\{\}" in "".join(report(rows).pres)


def test_the_page_refers_to_nothing_but_itself_and_its_figures():
    rows = [make_row(m, s) for m in ("van", "mega-ii", "a-gem") for s in range(2)]
    page = report(rows, folder='50 % "of": <it>')
    inside, outside = [], []
    for link in page.links:
        (inside if link.startswith("#") else outside).append(link)
    ids = {found["id"] for _, found in page.tags if "id" in found}
    assert {link[1:] for link in inside} <= ids
    assert outside
    for link in outside:
        assert re.fullmatch(r"50%20%25%20%22of%22%3A%20%3Cit%3E/[a-z0-9-]+\.(svg|pdf|png)", link)


def test_only_the_pages_own_script_and_style_may_run():
    text = report_page(summarise([make_row()]), DEFAULTS, "figures")
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])
    for kind, body in {
        "style": re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1],
        "script": re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1],
    }.items():
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert " style=" not in text  # the policy would ignore it


def test_figures_are_files_for_papers_and_the_same_again(tmp_path):
    rows = [make_row(m, s) for m in ("van", "multi-task") for s in range(2)]
    rows += [make_row("mega-i", 0, trick="$\\frac$ unfinished")]
    folder = write_report(rows, DEFAULTS, tmp_path / "report.html")
    assert folder == tmp_path / "report-figures"
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(
        f"permuted-mnist-17x55000-{figure}.{kind}"
        for figure in ("accuracy", "lca", "metrics")
        for kind in ("svg", "pdf", "png")
    )
    starts = {".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}
    for name in names:
        content = (folder / name).read_bytes()
        assert content.startswith(starts[(folder / name).suffix])
    drawn = (folder / "permuted-mnist-17x55000-accuracy.svg").read_text()
    assert "MULTI-TASK" in drawn
    assert "MEGA-I trick=$\\frac$ unfinished" in drawn
    page = tmp_path / "report.html"
    before = {path: path.read_bytes() for path in (page, *folder.iterdir())}
    assert len(before) == 10
    write_report(rows, DEFAULTS, page)
    assert {path: path.read_bytes() for path in (page, *folder.iterdir())} == before


def test_what_somebody_wrote_is_not_overwritten(tmp_path):
    mine = tmp_path / "report.html"
    mine.write_text("<!DOCTYPE html>\n<p>my own</p>\n")
    with pytest.raises(EngramError, match=r"report\.html' is no report of ours"):
        write_report([make_row()], DEFAULTS, mine)
    assert mine.read_text() == "<!DOCTYPE html>\n<p>my own</p>\n"
    with pytest.raises(EngramError, match="no results to report"):
        write_report([], DEFAULTS, tmp_path / "new.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.usefixtures("quick_figures")
def test_the_command_writes_beside_the_store_or_where_it_is_told(tmp_path, engram, monkeypatch):
    path = tmp_path / "results" / "store.sqlite"
    with Store(path) as store:
        store.add([make_row("multi-task", seed) for seed in range(2)])
    monkeypatch.setattr(protocol, "specify", paper_world.specify)
    page = path.with_name("report.html")
    assert engram("report", "--store", path).out.splitlines() == [
        f"Report: {page}",
        f"Figures for papers: {page.with_name('report-figures')}",
    ]
    mine = engram("report", "--store", path, "--out", tmp_path / "mine.html").out
    assert mine.splitlines() == [
        f"Report: {tmp_path / 'mine.html'}",
        f"Figures for papers: {tmp_path / 'mine-figures'}",
    ]
    assert page.stat().st_size > 10_000
    code, _, err = engram("report", "--store", tmp_path / "none.sqlite")
    assert (code, "There is no store at" in err) == (2, True)


def test_of_runs_that_all_diverged_no_figures_are_told(tmp_path, engram):
    with Store(tmp_path / "store.sqlite") as store:
        store.add([make_row("van", failure="It diverged.")])
    out = engram("report", "--store", tmp_path / "store.sqlite").out
    assert out == f"Report: {tmp_path / 'report.html'}\n"


def test_every_claim_is_on_the_page_with_its_mark():
    page = report([make_row("van")])
    items = page.words
    for claim in CLAIMS:
        assert f"cannot be told yet {claim}" in items
