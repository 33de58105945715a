"""The command line: parses, calls one function, prints."""

from engram.app.cli.process import main

__all__ = ["main"]
