"""pouchdb-server as a contender: the counterpart of `servers.Server`, over HTTP.

It is started and stopped for the cases of documents, and is a peer in no other case.
"""

import http.client
import json

from servers import READY_POLL_S, START_TIMEOUT_S, Server, ServerFailed

# Otherwise it writes a line to a file for each request.
CONFIGURATION = {"log": {"level": "error"}}


class PouchServer(Server):
    """One pouchdb-server on LevelDB."""

    def start(self, timeout_s: float = START_TIMEOUT_S, poll_s: float = READY_POLL_S) -> float:
        # The server does not create the directory of the databases or the file correctly by itself.
        (self.directory / "databases").mkdir(parents=True, exist_ok=True)
        (self.directory / "config.json").write_text(json.dumps(CONFIGURATION))
        return super().start(timeout_s, poll_s)

    def _answers(self) -> bool:
        try:
            self._welcome()
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return True

    def _check_identity(self) -> None:
        if "express-pouchdb" not in self._welcome():
            raise ServerFailed(f"port {self.ports.http} belongs to another server")

    def _welcome(self) -> dict[str, object]:
        connection = http.client.HTTPConnection("127.0.0.1", int(self.ports.http), timeout=10)
        try:
            connection.request("GET", "/")
            welcome: dict[str, object] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return welcome
