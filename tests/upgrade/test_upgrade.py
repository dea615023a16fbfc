"""Directories that earlier versions have written are started on, with all that they held.

A version's directory is VERSION.tar.xz: a snapshot, a log after it, documents, messages of a durable channel, users,
as kill -9 left them. VERSION.json has a digest of each thing in it. A new pair is made when a format has changed, by
the version that is to be left behind; between two releases its name ends with the commit:

    SHEAF_BINARY=... PYTHONPATH=tests python3 -m upgrade.test_upgrade 0.1.0-a01ea54d

| version | what later ones write differently |
|---|---|
| 0.1.0 | it has no users |
| 0.1.0-a01ea54d | records of users of version 1, without births |
"""

import hashlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from harness import everything
from harness.server import Options, Server, run_sheaf

HERE = Path(__file__).parent
VERSIONS = sorted(file.name.removesuffix(".tar.xz") for file in HERE.glob("*.tar.xz"))
# Deadlines that no test will see pass.
YEAR_2100_MS = 4_102_444_800_000
CHANNEL = "kept.channel"
MESSAGES = ["before the snapshot", "after the snapshot"]
RULES = ["on", ">secret", "~orders:*", "%R~read:*", "&news.*", "+@read", "-keys", "(+set ~written:*)"]
# Made by ACL SETUSER before the snapshot and after it, and over HTTP.
USERS = ["early", "late", "bert"]

pytestmark = pytest.mark.sheaf_only


def request(server: Server, path: str, body: object = None, method: str | None = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    asked = Request(
        f"http://127.0.0.1:{server.http_port}{path}", data, {"Content-Type": "application/json"}, method=method
    )
    with urlopen(asked) as answer:
        return json.load(answer)


def write(server: Server) -> None:
    """Data of every kind; a snapshot is taken in the middle."""
    everything.write_everything(server.port, random.Random(1))
    with server.connect() as connection:
        for database in everything.DATABASES:
            connection.call("SELECT", database)
            for key in connection.call("KEYS", "*"):
                if connection.call("PEXPIRETIME", key) > 0:
                    connection.call("PEXPIREAT", key, YEAR_2100_MS)
                if connection.call("TYPE", key) == b"hash":
                    fields = connection.call("HKEYS", key)
                    deadlines = connection.call("HPEXPIRETIME", key, "FIELDS", len(fields), *fields)
                    for field in (it for it, deadline in zip(fields, deadlines, strict=True) if deadline > 0):
                        connection.call("HPEXPIREAT", key, YEAR_2100_MS, "FIELDS", 1, field)
        connection.call("CONFIG", "SET", "durable-channels", "kept.*")
        connection.call("PUBLISH", CHANNEL, MESSAGES[0])
    request(server, "/orders", method="PUT")
    attached = {"a.txt": {"content_type": "text/plain", "data": "aGVsbG8="}}
    documents = [{"_id": f"order-{number}", "number": number} for number in range(300)]
    request(server, "/orders/_bulk_docs", {"docs": [*documents, {"_id": "attached", "_attachments": attached}]})
    with server.connect() as connection:
        connection.call("ACL", "SETUSER", "early", *RULES)
        connection.call("SAVE")
        connection.call("ACL", "SETUSER", "late", *RULES)
        connection.call("SET", "after the snapshot", "1")
        connection.call("IDEMP", "once", YEAR_2100_MS, "INCR", "counted")
        connection.call("PUBLISH", CHANNEL, MESSAGES[1])
    conflict = {"_id": "order-1", "_rev": "1-0123456789abcdef0123456789abcdef", "number": "conflict"}
    request(server, "/orders/_bulk_docs", {"new_edits": False, "docs": [conflict]})
    bert = {"name": "bert", "password": "secret", "roles": ["reader"], "type": "user"}
    request(server, "/_users", method="PUT")
    request(server, "/_users/org.couchdb.user:bert", bert, method="PUT")
    deleted = request(server, "/orders/order-2")
    request(server, f"/orders/order-2?rev={deleted['_rev']}", method="DELETE")


def digests(server: Server) -> dict[str, str]:
    """A digest of each key, of the documents, the messages and the users, by name."""
    found = {str(name): value for name, value in everything.all_data(server.port).items()}
    for number in range(300):
        if number != 2:
            found[f"order-{number}"] = request(server, f"/orders/order-{number}?conflicts=true")
    found["attached"] = request(server, "/orders/attached?attachments=true")
    # The order of changes is that of the sequence, which is an opaque word.
    changes = request(server, "/orders/_changes?style=all_docs")["results"]
    found["changes"] = [{name: value for name, value in change.items() if name != "seq"} for change in changes]
    with server.connect() as connection:
        users = {line.split()[1].decode(): line for line in connection.call("ACL", "LIST")}
    found |= {name: users[name] for name in USERS if name in users}
    found["messages"], position = [], "-"
    while len(found["messages"]) < len(MESSAGES):
        read = request(server, "/_redis/channel", {"channel": CHANNEL, "from": position, "wait_ms": 20000})
        assert read["messages"] and read["lost"] is None, read
        found["messages"] += read["messages"]
        position = read["next"]
    assert [message["message"] for message in found["messages"]] == MESSAGES
    return {name: hashlib.sha256(repr(value).encode()).hexdigest()[:16] for name, value in found.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_directory_of_an_earlier_version_has_all_it_had(version: str, new_server: Callable[..., Server], tmp_path: Path):
    subprocess.run(["tar", "-xJf", HERE / f"{version}.tar.xz", "-C", tmp_path], check=True)
    directory = tmp_path / "data"
    checked = run_sheaf("check", str(directory))
    assert checked.returncode == 0, checked
    expected = json.loads((HERE / f"{version}.json").read_text())
    server = new_server(directory=directory, log_segment_bytes="1mb")
    # As it was left, and then as this version has written it.
    for _ in range(2):
        server.start()
        found = digests(server)
        assert {name: found.get(name) for name in expected} == expected
        assert found.keys() == expected.keys()
        with server.connect() as connection:
            # It is not counted again.
            assert connection.call("IDEMP", "once", YEAR_2100_MS, "INCR", "counted") == 1
            for user in USERS if "early" in expected else []:
                with server.connect() as login:
                    assert login.call("AUTH", user, "secret") == b"OK", user
            connection.call("SAVE")
        assert server.stop() == 0


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        server = Server(Path(scratch) / "data", Options(log_segment_bytes="1mb")).start()
        try:
            write(server)
            (HERE / f"{version}.json").write_text(json.dumps(digests(server), indent=0, sort_keys=True) + "\n")
        finally:
            server.kill()
        names = ["--exclude=sheaf.lock", "--sort=name", "--owner=0", "--group=0"]
        subprocess.run(["tar", *names, "-C", scratch, "-cJf", HERE / f"{version}.tar.xz", "data"], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
