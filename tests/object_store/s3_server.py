"""An S3 server on loopback, moto's, for stores of tests; it may be told to be away, or to lose its answers.

It serves one request at a time, for moto looks whether an object is there and writes it in two steps. Its listings come in pages of a few
names, so that whatever is listed comes in several.
"""

from __future__ import annotations

import http.client
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Final, Literal

from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Fault = Literal["away", "lost", "conflict", "denied"]
"""It has no time; it does what is asked, and its answer is an error; another is writing there; who asks may not."""

SECRET: Final = "k33p-this-t0-yourself"  # noqa: S105 - of nothing
ACCESS_KEY: Final = "AKIAIOSFODNN7EXAMPLE"
PAGE: Final = 7

_FAULTS: Final[Mapping[Fault, tuple[str, str]]] = {
    "away": ("503 Slow Down", "SlowDown"),
    "lost": ("500 Internal Server Error", "InternalError"),
    "conflict": ("409 Conflict", "ConditionalRequestConflict"),
    "denied": ("403 Forbidden", "InvalidAccessKeyId"),
}


class S3Server:
    """The server; ``fault`` says what goes wrong with a request, by its method and path; ``copies`` counts copies by their path."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server

        class Quiet(MotoRequestHandler):
            def log_request(self, *_: object) -> None:
                """Say nothing."""

        self.fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
        self.copies: Counter[str] = Counter()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._one = threading.Lock()
        self._numbers = itertools.count(1)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def variables(self) -> dict[str, str]:
        """What has to be in the environment for stores on this server, with the size of its pages."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE),
        }

    def new_store(self) -> JobStore:
        """Return the root of a store in a bucket of its own."""
        bucket = f"lake-{next(self._numbers)}"
        assert self.put(f"/{bucket}") == 200
        return JobStore.open(f"s3://{bucket}/jobs")

    def put(self, path: str) -> int:
        """Make a bucket, or an empty object that may be of a name that the store gives to none; return the status."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.server_port)
        try:
            connection.request("PUT", path, headers={"Authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/us-east-1/s3/x"})
            return connection.getresponse().status
        finally:
            connection.close()

    @contextmanager
    def failing(self, fault: Callable[[str, str], Fault | None]) -> Iterator[None]:
        """Let requests fail for a while."""
        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        fault = self.fault(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if "HTTP_X_AMZ_COPY_SOURCE" in environ:
            self.copies[environ["PATH_INFO"]] += 1
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = BytesIO(body)
        with self._one:
            if fault is None:
                return list(self._moto(environ, start))
            if fault == "lost":
                list(self._moto(environ, lambda *_: lambda _: None))
        status, code = _FAULTS[fault]
        start(status, [("Content-Type", "application/xml")])
        said = f"<Code>{code}</Code><Message>This is why.</Message><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId>"
        return [f"<?xml version='1.0'?>\n<Error>{said}</Error>".encode()]


@cache
def server() -> S3Server:
    """Return the server of this process."""
    return S3Server()


class Now:
    """A fault of requests of one kind: so many times for each path, then no more."""

    def __init__(self, fault: Fault, method: str, *, times: int = 1, of: str = "") -> None:
        self._fault: Fault = fault
        self._method = method
        self._times = times
        self._of = of
        self.met: dict[str, int] = {}

    def __call__(self, method: str, path: str) -> Fault | None:
        if method != self._method or self._of not in path or self.met.get(path, 0) >= self._times:
            return None
        self.met[path] = self.met.get(path, 0) + 1
        return self._fault
