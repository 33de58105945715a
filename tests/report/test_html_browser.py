"""The page in a real browser, without a network: it draws, toggles, tells values, and is calm."""

import shutil
from pathlib import Path

import pytest
from paper_world import DEFAULTS, make_row, told

from engram.app.report import PaperDefaults, summarise
from engram.app.report.html import report_page
from engram.app.runs import read_lines
from engram.lab import protocol

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
METHODS = ("van", "a-gem", "mega-i", "mega-ii", "multi-task")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")


@pytest.fixture(scope="module")
def rows():
    trained = [make_row(method, seed) for method in METHODS for seed in range(3)]
    tricky = [make_row("mega-i", 0, trick="</script><b>bold</b>")]
    few = [make_row("mega-ii", 0, tasks=20, examples=n) for n in (200, 400)]
    return [*trained, *tricky, *few]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(summarise(rows), DEFAULTS, "figures"), "utf-8")
    return path.as_uri()


@pytest.fixture
def visit(browser, address):
    """Open the page as some device would; complaints and requests are checked at the end."""
    contexts, complaints, requests = [], [], []

    def open_page(**device):
        context = browser.new_context(offline=True, **device)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert set(requests) == {address}


def test_numbers_that_differ_by_rounding_alone_do_not_stop_the_page(visit):
    page = visit()
    assert page.evaluate("ticks(20, 20.000000000000004, 5).places.length") < 5
    assert page.evaluate("ticks(0, 1e-3, 5).places.length") > 4


def test_all_that_was_ever_measured_is_drawn(browser, tmp_path):
    """The report of the committed results, without an error."""
    files = sorted((Path(__file__).parents[2] / "results").glob("*.jsonl"))
    rows = [row for file in files for row in read_lines(file)]
    path = tmp_path / "report.html"
    path.write_text(
        report_page(summarise(rows), PaperDefaults(protocol.specify), "figures"), "utf-8"
    )
    page, complaints = browser.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    plots = page.locator("[data-chart]")
    assert plots.count() == page.locator("[data-chart] > svg").count() > 90
    page.close()
    assert complaints == []


def section(page):
    return page.locator("#permuted-mnist-17x55000")


def test_every_figure_is_drawn_and_methods_are_switched(visit):
    page = visit(viewport={"width": 1280, "height": 900})
    plots = page.locator("[data-chart]")
    assert plots.count() == page.locator("[data-chart] > svg").count() > 7
    accuracy = section(page).locator("[data-chart=accuracy]")
    names = section(page).locator(".legend .method")
    assert names.all_inner_texts() == [
        "VAN",
        "A-GEM",
        "MEGA-I",
        "MEGA-I trick=</script><b>bold</b>",
        "MEGA-II",
        "MULTI-TASK",
    ]
    assert accuracy.locator("g.series").count() == 5  # the tricky one is off at first
    van = names.nth(0)
    assert van.get_attribute("aria-pressed") == "true"
    van.click()
    assert van.get_attribute("aria-pressed") == "false"
    assert accuracy.locator("g.series").count() == 4
    assert section(page).locator("[data-chart=forgetting] g.series").count() == 3
    section(page).get_by_role("button", name="None", exact=True).click()
    assert section(page).locator("g.series").count() == 0
    section(page).get_by_role("button", name="All", exact=True).click()
    assert accuracy.locator("g.series").count() == 6


def test_values_are_told_on_hover_and_by_the_keyboard(visit, rows):
    page = visit(viewport={"width": 1280, "height": 900})
    last = told([row for row in rows if row.identity["method"] == "a-gem"], "average_accuracy")
    accuracy = section(page).locator("[data-chart=accuracy] svg")
    dot = section(page).locator('[data-chart=accuracy] g[data-line="1"] circle').last
    dot.scroll_into_view_if_needed()
    place = dot.bounding_box()
    page.mouse.move(place["x"] + 2, place["y"] + 2)
    tip = page.locator(".tip")
    assert "tasks learned: 17" in tip.inner_text()
    assert last in tip.locator("li.lit").inner_text()
    assert tip.locator("li").count() == 5
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    accuracy.focus()
    for _ in range(17):
        page.keyboard.press("ArrowRight")
    assert last in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    bar = section(page).locator('[data-chart=average-accuracy] g[data-line="1"]')
    bar.hover()
    assert last in tip.inner_text()
    assert "89.32 ± 0.46" in tip.inner_text()


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_never_scrolls_sideways(visit, width):
    page = visit(viewport={"width": width, "height": 800})
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    table = section(page).locator(".scroll").first
    assert table.evaluate("node => getComputedStyle(node).overflowX") == "auto"


def test_a_dark_screen_gets_a_dark_page(visit):
    def colours(scheme):
        page = visit(color_scheme=scheme)
        line = section(page).locator('[data-chart=accuracy] g[data-line="4"] .line')
        return (
            page.evaluate("getComputedStyle(document.body).backgroundColor"),
            line.evaluate("node => getComputedStyle(node).stroke"),
        )

    assert colours("light") == ("rgb(255, 255, 255)", "rgb(198, 40, 40)")
    dark, stroke = colours("dark")
    assert max(map(int, dark[4:-1].split(","))) < 40
    assert stroke == "rgb(255, 123, 114)"


def test_tables_can_be_copied_and_read_without_javascript(visit):
    page = visit()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy = section(page).locator("details", has_text="Copy as LaTeX").first
    copy.locator("summary").click()
    copy.get_by_role("button", name="Copy").click()
    copy.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("% \\usepackage{booktabs}")
    plain = visit(java_script_enabled=False)
    assert section(plain).locator("table").first.is_visible()
    assert "This figure needs JavaScript" in section(plain).inner_text()
    assert plain.locator("button:visible").count() == 0


@pytest.fixture
def narrow(browser, tmp_path):
    """A page of long names, wide numbers and seeds that diverged, at some width."""
    rows = [
        make_row(
            method,
            seed,
            tasks=tasks,
            examples=examples,
            memory_per_class=6,
            final=None if method == "van" else 0.5 + (method == "mega-ii") / 4,
            failure="It diverged." if method == "gem" and seed > 1 else None,
            facts={"parameters": 10**9},
        )
        for method in ("van", "gem", "a-gem", "mega-ii", "mega-ii-unbalanced")
        for tasks, examples in ((17, 55_000), (17, 55), (3, 55), (4, 55), (5, 55))
        for seed in range(4)
    ]
    rows += [make_row("mega-i", memory_per_class=6, epsilon_of_a_long_name=n) for n in range(3)]
    path = tmp_path / "report.html"
    path.write_text(report_page(summarise(rows), DEFAULTS, "figures"), "utf-8")

    def open_page(width):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(path.as_uri())
        return page

    return open_page


OUTSIDE = """() => [...document.querySelectorAll(".plot text")].filter((text) => {
  const inner = text.getBoundingClientRect(), outer = text.closest("svg").getBoundingClientRect();
  return inner.left < outer.left || inner.right > outer.right;
}).map((text) => text.textContent)"""


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_text_of_a_figure_is_cut_and_names_stay_different(narrow, width):
    page = narrow(width)
    section(page).get_by_role("button", name="All", exact=True).click()
    assert page.evaluate(OUTSIDE) == []
    names = section(page).locator("[data-chart=memory] .name").all_text_contents()
    assert len({*names}) == len(names) == 8
    page.close()


def test_what_survivors_tell_is_hollow_and_said_on_hover(narrow):
    page = narrow(1280)
    told = "2 of 4 seeds, the others diverged"
    for chart in ("accuracy", "lca"):
        dots = section(page).locator(f'[data-chart={chart}] g[data-line="1"] circle')
        assert dots.count() == section(page).locator(f"[data-chart={chart}] .dot.partial").count()
    bar = section(page).locator("[data-chart=average-accuracy] .bar.partial")
    bar.hover()
    assert told in page.locator(".tip").inner_text()
    sweep = page.locator("#permuted-mnist-over-tasks-55 [data-chart=accuracy]")
    assert sweep.locator(".dot.partial").count() == 4
    sweep.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    assert f"GEM ({told})" in page.locator(".tip").inner_text()
    page.close()


def test_a_phone_shows_who_is_ahead_without_scrolling(narrow):
    page = narrow(390)
    head = page.locator("#answer thead th", has_text="seeds ahead").bounding_box()
    assert head["x"] + head["width"] <= 390
    page.close()
