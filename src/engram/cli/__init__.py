"""The command line: parses, calls one function, prints."""

from engram.cli.process import main

__all__ = ["main"]
