"""What Ctrl-C does, at any line of the package, and again while its first one is dealt with."""

import sys


def interrupted(call, package, *lines):
    """Make a call until so many lines of the package have begun, and again so many after that.

    Returns how many of these interruptions came.
    """
    left, begun = [*lines], 0

    def trace(frame, event, _):
        nonlocal begun
        if not frame.f_globals["__name__"].startswith(package):
            return None
        begun += event == "line"
        if left and begun == left[0]:
            left.pop(0)
            begun = 0
            raise KeyboardInterrupt
        return trace

    def profile(frame, *_):
        """Begin to trace again, for an exception out of a trace function ends it."""
        if left and sys.gettrace() is None:
            sys.settrace(trace)
            while frame is not None:
                if frame.f_globals["__name__"].startswith(package):
                    frame.f_trace = trace
                frame = frame.f_back

    previous = sys.gettrace(), sys.getprofile()
    if len(lines) > 1:
        sys.setprofile(profile)
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(previous[1])
        sys.settrace(previous[0])
    return len(lines) - len(left)
