"""``python -m engram`` is the command line."""

from engram.app.cli import main

if __name__ == "__main__":
    main()
