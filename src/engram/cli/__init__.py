"""The command line: parses, calls one function, prints."""

from engram.cli._app import main

__all__ = ["main"]
