"""A collector of OpenTelemetry: takes spans as JSON over HTTP, and is strict about their form."""

import json
import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from harness.server import free_port
from harness.waiting import wait_until

INTERNAL, SERVER, ERROR = 1, 2, 2
FIELDS = {"traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes"}
OPTIONAL = {"parentSpanId", "status"}


@dataclass
class Span:
    """A span that was received."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: int
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    # The message of the error; None without an error.
    error: str | None

    @property
    def duration_ns(self) -> int:
        return self.ended_ns - self.began_ns


class Collector:
    """A collector on a port of its own, within a `with` block. The collector answers each request with `status`."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self.status = 200
        self.bodies: list[bytes] = []
        self.resources: list[dict[str, Any]] = []
        self._spans: list[Span] = []
        self._wrong: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.status == 200:
                    collector.take(self.path, self.headers["Content-Type"], body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        assert not self._wrong, self._wrong

    def take(self, path: str, media_type: str, body: bytes) -> None:
        """Takes a request."""
        try:
            assert (path, media_type) == ("/v1/traces", "application/json")
            taken = [span for resource in json.loads(body)["resourceSpans"] for span in self._of_resource(resource)]
            self.bodies.append(body)
            self._spans.extend(taken)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            self._wrong.append(f"{error!r}: {body[:1000]!r}")

    def _of_resource(self, resource: dict[str, Any]) -> list[Span]:
        assert set(resource) == {"resource", "scopeSpans"}
        self.resources.append(attributes(resource["resource"]["attributes"]))
        spans = []
        for scope in resource["scopeSpans"]:
            assert set(scope) == {"scope", "spans"} and scope["scope"]["name"] == "sheaf"
            spans += [span_of(fields) for fields in scope["spans"]]
        return spans

    def spans(self, name: str | None = None) -> list[Span]:
        """The spans of this name so far, or all."""
        assert not self._wrong, self._wrong
        return [span for span in list(self._spans) if name in (None, span.name)]

    def wait_for(self, name: str, count: int = 1) -> list[Span]:
        """Waits for at least `count` spans of this name, and returns them."""
        return wait_until(f"{count} spans named {name}", lambda: len(found := self.spans(name)) >= count and found)

    def below(self, parent: Span) -> list[Span]:
        """The spans right below this one, in the order of their beginnings."""
        found = [span for span in self.spans() if span.trace_id == parent.trace_id and span.parent_id == parent.span_id]
        return sorted(found, key=lambda span: span.began_ns)


def attributes(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Names and values; no name comes twice."""
    found: dict[str, Any] = {}
    for pair in pairs:
        assert set(pair) == {"key", "value"} and pair["key"] not in found
        [(kind, value)] = pair["value"].items()
        match kind:
            case "intValue":
                assert isinstance(value, str)
                found[pair["key"]] = int(value)
            case "stringValue" | "boolValue":
                assert isinstance(value, str if kind == "stringValue" else bool)
                found[pair["key"]] = value
            case _:
                raise AssertionError(kind)
    return found


def span_of(fields: dict[str, Any]) -> Span:
    """A span from its JSON; every field must have the type that the specification prescribes."""
    assert set(fields) >= FIELDS and set(fields) <= FIELDS | OPTIONAL, fields
    assert re.fullmatch("[0-9a-f]{32}", fields["traceId"]) and int(fields["traceId"], 16)
    for name in {"spanId", "parentSpanId"} & set(fields):
        assert re.fullmatch("[0-9a-f]{16}", fields[name]) and int(fields[name], 16)
    assert isinstance(fields["startTimeUnixNano"], str) and isinstance(fields["endTimeUnixNano"], str)
    status = fields.get("status")
    assert status is None or status["code"] == ERROR
    span = Span(
        fields["traceId"],
        fields["spanId"],
        fields.get("parentSpanId"),
        fields["name"],
        fields["kind"],
        int(fields["startTimeUnixNano"]),
        int(fields["endTimeUnixNano"]),
        attributes(fields["attributes"]),
        None if status is None else status.get("message", ""),
    )
    assert span.began_ns <= span.ended_ns and span.kind in (INTERNAL, SERVER) and span.name
    return span
