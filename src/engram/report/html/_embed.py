"""What makes the page whole: its style, its script, its data, and a ban on everything else."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources

from engram.report.html._element import Markup, element

_SCRIPTS = ("svg.js", "tip.js", "lines.js", "bars.js", "page.js")


def head(title: str) -> Markup:
    """Return the head of the page: nothing in the page can load anything or run another script."""
    css, script = _read("page.css"), _script()
    policy = (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("title", title),
        element("style", Markup(css)),
    )


def embedded_data(data: object) -> Markup:
    r"""Return data as a JSON block that no text in it can end.

    >>> embedded_data(["</script>"])
    '<script type="application/json" id="data">["\\u003c/script>"]</script>'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return element("script", Markup(text), type="application/json", id="data")


def script() -> Markup:
    """Return the page's one script."""
    return element("script", Markup(_script()))


def _script() -> str:
    return "".join(_read(name) for name in _SCRIPTS)


def _read(name: str) -> str:
    return resources.files("engram.report.html").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
