"""A client for the HTTP port that hides nothing: requests are sent as given, and every header is returned.

Invariant: one connection per client, kept alive; a reply that is not the JSON that it claims to be fails the
test.
"""

import base64
import http.client
import json
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from harness.waiting import PATIENCE_S

JSON = {"Content-Type": "application/json", "Accept": "application/json"}


@dataclass
class Answer:
    """A complete reply."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; it ends with a newline, as CouchDB's does."""
        assert self.body.endswith(b"\n"), self.body[-100:]
        return json.loads(self.body)

    def told(self) -> tuple[int, str, str]:
        """Status, error and reason of an error reply."""
        assert set(self.json) == {"error", "reason"}, self.json
        return self.status, self.json["error"], self.json["reason"]


class Couch:
    """One connection to a server."""

    def __init__(self, port: int, user: tuple[str, str] | None = None):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.headers = dict(JSON)
        if user is not None:
            self.headers["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Sends bytes unchanged and anything else as JSON; `If_Match="x"` sets a header, an empty text
        removes one.
        """
        answer = self.begin(method, path, body, **headers)
        return Answer(answer.status, answer.headers, answer.read())

    def begin(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """Like `send`, without reading the body of the reply."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        named = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        named = {name: value for name, value in named.items() if value != ""}
        self._connection.request(method, path, body, named)
        return self._connection.getresponse()

    def get(self, path: str, **headers: str) -> Answer:
        """Sends GET."""
        return self.send("GET", path, **headers)

    def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of a reply that must be successful."""
        answer = self.send(method, path, body, **headers)
        assert 200 <= answer.status < 300, (answer.status, answer.body)
        return answer.json

    def put(self, database: str, document: dict[str, Any]) -> str:
        """Writes a document, and returns its revision."""
        return self.ok("PUT", f"/{database}/{quote(document['_id'], safe='/')}", document)["rev"]


def rest_of(feed: http.client.HTTPResponse) -> bytes:
    """The rest of a feed with heartbeats, which must end."""
    rest, deadline = b"", time.monotonic() + PATIENCE_S
    while line := feed.readline():
        assert time.monotonic() < deadline, f"the feed goes on after {rest!r}"
        rest += line
    return rest


def revision(generation: int, digit: str) -> str:
    """A revision whose hash is one digit, repeated."""
    return f"{generation}-{digit * 32}"
