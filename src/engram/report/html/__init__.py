"""The report as one HTML page that needs no network, with its figures as files for papers."""

from engram.report.html._page import report_page, write_report

__all__ = ["report_page", "write_report"]
