"""Reads a page as a browser without JavaScript would."""

import json
from html.parser import HTMLParser

from paper_world import DEFAULTS

from engram.app.report import summarise
from engram.app.report.html import report_page


def report(rows, folder="report-figures"):
    """Read the page of some rows, whose figures would lie in a folder."""
    return Page(report_page(summarise(rows), DEFAULTS, folder))


class Page(HTMLParser):
    """The page's tables, links, scripts, texts and data."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.links, self.scripts, self.tables, self.pres = [], [], [], {}, []
        self.headings, self.text = [], []
        self._open, self._cells, self._caption = [], None, None
        self.feed(text)
        self.close()

    @property
    def data(self):
        return json.loads(self.scripts[0])

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        self.links += [found[name] for name in ("src", "href", "action", "data") if name in found]
        if tag in ("meta", "br"):
            return
        self._open.append(tag)
        if tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self._cells = []
        elif tag in ("td", "th"):
            self._cells.append("")
        elif tag == "script":
            self.scripts.append("")
        elif tag == "pre":
            self.pres.append("")
        elif tag in ("h1", "h2", "h3"):
            self.headings.append("")

    def handle_data(self, text):
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            self.scripts[-1] += text
        elif inside == "pre":
            self.pres[-1] += text
        elif inside == "caption":
            self._caption += text
        elif inside in ("td", "th"):
            self._cells[-1] += text
        if {"h1", "h2", "h3"} & set(self._open):
            self.headings[-1] += text
        if inside not in ("script", "style", "pre"):
            self.text.append(text)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, tag
        if tag == "caption":
            self.tables.setdefault(self._caption, [])
        elif tag == "tr":
            self.tables[self._caption].append(self._cells)
