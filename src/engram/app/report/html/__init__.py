"""The report as one HTML page that needs no network, with its figures as files for papers.

``page.py`` gathers what the page shows and ``templates`` say how. Styles and scripts are in
``assets`` and become part of the page.
"""

from engram.app.report.html.page import report_page, write_report

__all__ = ["report_page", "write_report"]
