"""The command line: parses, calls one function, prints."""

from engram.cli._signals import heeded

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    with heeded():  # before anything that takes time to import
        from engram.cli import _app

        _app.main()
