"""How recorded clients reach the leader of a group: over raw connections, with redis-py through Sentinel, and
over HTTP.

All of them tell three outcomes apart: a reply; `Refused`, nothing was executed; `Unknown`, the operation may
have been executed, or may still be.
"""

import contextlib
import http.client
import json
import random
import threading
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from harness import resp
from harness.groups import NAME
from harness.server import Server

# Errors that say that nothing was executed.
REFUSALS = ("READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "MISCONF", "EXECABORT", "UNBLOCKED")
# Errors that leave the outcome open.
OPEN_ERRORS = ("IOERR",)
# 503: the server does not lead, or loads its data; 507: the disk is full.
HTTP_REFUSALS = (503, 507)
ROLE_TIMEOUT_S = 1.0
# A short patience finds the next leader soon; a long one gets the late reply of a leader that was paused.
PATIENCES_S = (0.7, 3.0, 10.0)
HTTP_TIMEOUT_S = 3.0
PAUSE_S = 0.02


class Refused(Exception):
    """Nothing was executed."""


class Unknown(Exception):
    """The operation may have been executed, or may still be."""


class NoLeader(Refused):
    """No server says that it leads."""


def judged(replies: list[Any]) -> list[Any]:
    """The replies, if there is no error among them."""
    for reply in replies:
        if isinstance(reply, resp.ErrorReply):
            if reply.text.startswith(OPEN_ERRORS):
                raise Unknown(reply.text)
            if reply.text.startswith(REFUSALS):
                raise Refused(reply.text)
            raise AssertionError(f"an error that no client expects: {reply.text}")
    return replies


class Raw:
    """One connection at a time to a server that says that it leads, used until the connection fails."""

    def __init__(self, servers: list[Server], seed: str, stops: threading.Event):
        self._servers, self._random, self._stops = servers, random.Random(seed), stops
        self._connection: resp.Connection | None = None
        self.server = ""

    def connect(self) -> resp.Connection:
        """The connection; raises NoLeader."""
        if self._connection is None:
            for number in self._random.sample(range(len(self._servers)), len(self._servers)):
                with contextlib.suppress(OSError, resp.Closed, resp.NotAReply):
                    server = self._servers[number]
                    connection = resp.Connection(server.port, server.host, ROLE_TIMEOUT_S)
                    try:
                        role = connection.call("ROLE")
                    except BaseException:
                        connection.close()
                        raise
                    if isinstance(role, list) and role[0] == b"master":
                        connection.socket.settimeout(self._random.choice(PATIENCES_S))
                        self._connection, self.server = connection, str(number + 1)
                        return connection
                    connection.close()
            self._stops.wait(PAUSE_S)
            raise NoLeader
        return self._connection

    def ask(self, *commands: tuple) -> list[Any]:
        """The replies to a pipeline."""
        connection = self.connect()
        try:
            connection.send(b"".join(resp.encode(*words) for words in commands))
            return judged([connection.read() for _ in commands])
        except (OSError, resp.Closed) as lost:
            self.close()
            raise Unknown from lost
        except (Unknown, Refused):
            self.close()
            raise

    def close(self) -> None:
        """Leaves the server."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Stock:
    """redis-py, which finds the leader by Sentinel's protocol. Its own retries are off: they would hide what
    happened to each attempt.
    """

    def __init__(self, servers: list[Server], seed: str, stops: threading.Event, timeout_s: float = 1.0):
        self._random, self._stops = random.Random(seed), stops
        settings = {"socket_timeout": timeout_s, "protocol": 2, "retry": Retry(NoBackoff(), 0)}
        sentinels = [(server.host, server.port) for server in servers]
        self._sentinel = Sentinel(sentinels, sentinel_kwargs=settings)
        self._client = self._sentinel.master_for(NAME, **settings)
        self._client.response_callbacks.clear()
        self.server = "by Sentinel"

    def ask(self, *commands: tuple) -> list[Any]:
        """The replies to a pipeline."""
        pipeline = self._client.pipeline(transaction=False)
        for words in commands:
            pipeline.execute_command(*words)
        try:
            return judged([_plain(reply) for reply in pipeline.execute(raise_on_error=False)])
        except redis.sentinel.MasterNotFoundError as missing:
            self._stops.wait(PAUSE_S)
            raise NoLeader from missing
        except redis.RedisError as lost:
            plain = _plain(lost)
            if isinstance(plain, resp.ErrorReply):
                judged([plain])
            raise Unknown from lost

    def close(self) -> None:
        """Disconnects."""
        self._client.close()
        for sentinel in self._sentinel.sentinels:
            sentinel.close()


def _plain(reply: Any) -> Any:
    """A reply of redis-py with the code of its error: redis-py removes the codes of some errors."""
    codes = {
        redis.ReadOnlyError: "READONLY",
        redis.exceptions.ClusterDownError: "CLUSTERDOWN",
        redis.exceptions.MasterDownError: "MASTERDOWN",
        redis.BusyLoadingError: "LOADING",
        redis.exceptions.ExecAbortError: "EXECABORT",
    }
    for kind, code in codes.items():
        if isinstance(reply, kind):
            return resp.ErrorReply(f"{code} {reply}")
    if isinstance(reply, redis.ResponseError):
        return resp.ErrorReply(str(reply))
    return reply


class Http:
    """One HTTP connection at a time, to any server. A reply to a write proves that the connection is to the
    leader, from then on: a leader that is deposed closes its connections.
    """

    def __init__(self, servers: list[Server], seed: str, stops: threading.Event):
        self._servers, self._random, self._stops = servers, random.Random(seed), stops
        self._connection: http.client.HTTPConnection | None = None
        self.leads = False
        self.server = ""

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON. 503 is Refused."""
        if self._connection is None:
            number = self._random.randrange(len(self._servers))
            server = self._servers[number]
            self.server, self.leads = str(number + 1), False
            connection = http.client.HTTPConnection(server.host, server.http_port, timeout=HTTP_TIMEOUT_S)
            try:
                connection.connect()
            except OSError as unreachable:
                self._stops.wait(PAUSE_S)
                raise NoLeader from unreachable
            # http.client must not replace a closed connection without our knowledge.
            connection.auto_open = 0
            self._connection = connection
        raw = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, path, raw, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as lost:
            self.close()
            raise Unknown from lost
        if status >= 500:
            self.close()
            self._stops.wait(PAUSE_S)
            raise (Refused if status in HTTP_REFUSALS and b"not_replicated" not in text else Unknown)(text.decode())
        if method != "GET" and status in (201, 202, 409, 412):
            self.leads = True
        return status, json.loads(text)

    def close(self) -> None:
        """Leaves the server."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.leads = False
