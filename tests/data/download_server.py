"""A server on this machine that gives one file, in good or bad ways."""

import re
import shutil
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Behaviour:
    """How the file is given; each request takes the next of the bytes at which to break off.

    ``status`` is the answer to the first requests, to ``refusals`` of them if that is given;
    ``leads_to`` another address, given with a redirection; ``pace`` how many bytes are sent at a
    time, and the seconds between two times; ``hesitation`` the seconds between
    two pieces of an answer that has no end: it ``begins`` somehow, and goes on with ``endless``.
    """

    def __init__(
        self,
        content=b"",
        *,
        breaks=(),
        ranges=True,
        declared=None,
        status=None,
        refusals=None,
        shift=0,
        leads_to=None,
        pace=None,
        headers=(),
        hesitation=None,
        begins=b"HTTP/1.0 200 OK\r\nX-Slow: ",
        endless=b"x",
    ):
        self.content, self.breaks, self.ranges = content, list(breaks), ranges
        self.declared, self.status, self.shift = declared, status, shift
        self.refusals, self.leads_to, self.pace = refusals, leads_to, pace
        self.headers, self.hesitation = dict(headers), hesitation
        self.begins, self.endless = begins, endless
        self.asked = []  # the Range of each request
        self.times = []  # and when it came

    def answer(self, handler):
        wanted = handler.headers.get("Range")
        self.asked.append(wanted)
        self.times.append(time.monotonic())
        if self.hesitation is not None:
            with suppress(OSError):  # whoever asked has gone
                handler.wfile.write(self.begins)
                for _ in range(100):
                    handler.wfile.write(self.endless)
                    time.sleep(self.hesitation)
            return
        if self.leads_to is not None:
            handler.send_response(302)
            handler.send_header("Location", self.leads_to)
            handler.end_headers()
            return
        if self.status and (self.refusals is None or len(self.asked) <= self.refusals):
            handler.send_response(self.status)
            for name, value in self.headers.items():
                handler.send_header(name, value)
            handler.end_headers()
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
        count, pause = self.pace or (len(rest) or 1, 0)
        with suppress(OSError):  # whoever asked has gone
            for start in range(0, stop, count):
                handler.wfile.write(rest[start : min(start + count, stop)])
                time.sleep(pause)


def certificate(folder):
    """Return a key and a certificate for this machine, made now; skip where nothing makes one."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    key, made = folder / "key.pem", folder / "certificate.pem"
    words = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=here"
    )
    words = [*words.split(), "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    words += ["-keyout", str(key), "-out", str(made)]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    return key, made


@contextmanager
def serving(*, encrypted=None, **behaviours):
    """Serve each behaviour under its name; yield the address that the names come after.

    ``encrypted`` is a key and a certificate, for HTTPS.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            behaviours[self.path.strip("/")].answer(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if encrypted:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(encrypted[1], encrypted[0])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'https' if encrypted else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
