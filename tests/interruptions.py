"""What Ctrl-C does, at any line of the package."""

import sys


def interrupted(call, package, line):
    """Make a call until so many lines of the package have begun; tell whether that was."""
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if not frame.f_globals["__name__"].startswith(package):
            return None
        lines += event == "line"
        if lines == line:
            raise KeyboardInterrupt
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(previous)
    return False
