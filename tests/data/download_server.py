"""A server on this machine that gives one file, in good or bad ways."""

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Behaviour:
    """How the file is given; each request takes the next of the bytes at which to break off."""

    def __init__(self, content, *, breaks=(), ranges=True, declared=None, status=None, shift=0):
        self.content, self.breaks, self.ranges = content, list(breaks), ranges
        self.declared, self.status, self.shift = declared, status, shift
        self.asked = []  # the Range of each request

    def answer(self, handler):
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        if self.status:
            handler.send_error(self.status)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and self.ranges else 0
        if start and start >= len(self.content):
            handler.send_error(416)
            return
        rest = self.content[start:]
        handler.send_response(206 if start else 200)
        if start:
            place = start + self.shift
            last = len(self.content) - 1
            handler.send_header("Content-Range", f"bytes {place}-{last}/{len(self.content)}")
        if self.declared != "nothing":
            handler.send_header("Content-Length", str(self.declared or len(rest)))
        handler.end_headers()
        stop = self.breaks.pop(0) if self.breaks else len(rest)
        handler.wfile.write(rest[:stop])


@contextmanager
def serving(**behaviours):
    """Serve each behaviour under its name; yield the address that the names come after."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            behaviours[self.path.strip("/")].answer(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
