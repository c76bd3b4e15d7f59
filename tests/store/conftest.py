"""A local S3 server for tests of stores at URLs, which can be told to fail."""

import datetime
import itertools
import logging
import random
import socket
import time
import urllib.request

import pytest

from jaxroute.engine import programs


class Server:
    """A local S3 server.

    requests: method and path of each. refused: part of the paths of what may not be written. unsound: share of the requests that go wrong: an
    error of the server, or a connection that is cut, before or after it has done what was asked; failed: their number.
    """

    def __init__(self, moto):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.requests, self.refused, self.unsound, self.failed, self._random = [], None, 0.0, 0, random.Random(0)
        self._server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self.url = "http://127.0.0.1:{1}".format(*self._server.get_host_and_port())
        self._answer, self._server._server.app = self._server._server.app, self
        self.stop = self._server.stop

    def __call__(self, environ, start):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        status, said = "403 Forbidden", "Access Denied"
        if self.refused is None or method == "GET" or self.refused not in path:
            if self._random.random() >= self.unsound:
                return self._answer(environ, start)
            self.failed += 1
            how, said = self._random.choice(["500 Error", "503 Busy", "cut", "done and cut"]), "Later"
            status = how if how[0] == "5" else "500 Error"
            if how == "done and cut":
                b"".join(self._answer(environ, lambda *_: None))
            if "cut" in how:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start(status, [("Content-Type", "application/xml")])
        return [f"<Error><Code>No</Code><Message>{said}</Message></Error>".encode()]

    def bucket(self, method, name):
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method=method))


@pytest.fixture(scope="module")
def server():
    moto = pytest.importorskip("moto.server", reason='needs a local S3 server: pip install "moto[s3]" flask flask-cors')
    yield (found := Server(moto))
    found.stop()


@pytest.fixture
def bucket(server, monkeypatch):
    """URL of an empty bucket, and what the environment says of its server."""
    said = {"ENDPOINT_URL": server.url, "ALLOW_HTTP": "true", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
    for name, value in (said | {"REGION": "us-east-1"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    server.refused, server.unsound = None, 0.0
    server.bucket("PUT", name := f"bucket-{time.monotonic_ns()}")
    del server.requests[:]
    return f"s3://{name}"


@pytest.fixture
def simulated(monkeypatch):
    """The runs that are simulated: name, setting and seed of each."""
    found, simulate_block = [], programs.Block.run

    def noted(self, tile, seeds, *resumed):
        settings = itertools.product(*tile.values())
        found.extend((self.name, *tile, *map(int, one), int(seed)) for one in settings for seed in dict.fromkeys(seeds))
        return simulate_block(self, tile, seeds, *resumed)

    monkeypatch.setattr(programs.Block, "run", noted)
    return found


@pytest.fixture
def clock(server, monkeypatch):
    """Seconds by which the clock of the server is off, in a list."""
    models, off = pytest.importorskip("moto.s3.models"), [0.0]
    now = models.utcnow
    monkeypatch.setattr(models, "utcnow", lambda: now() + datetime.timedelta(seconds=off[0]))
    return off
