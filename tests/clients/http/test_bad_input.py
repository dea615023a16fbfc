"""For any input, the answer is a clear error, and the next request is answered."""

import contextlib
import gzip
import json
import os
import socket

import pytest

from harness import procfs
from harness.couch import Couch

pytestmark = pytest.mark.sheaf_only

MIB = 1 << 20
INVALID = (400, "bad_request", "invalid UTF-8 JSON")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{]",
        b'{"a":}',
        b'{"a":1}x',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b"{'a':1}",
        b'{"a":01}',
        b'{"a":1,}',
        b"\x00",
        b"\xef\xbb\xbf{}",
    ],
)
def test_json_that_is_none_is_refused(db, body):
    assert db.send("PUT", "/db/a", body).told() == INVALID


@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b'"x"', b"true"])
def test_a_document_is_an_object(db, body):
    assert db.send("PUT", "/db/a", body).told() == (400, "bad_request", "Document must be a JSON object")


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"_x": 1}, (400, "doc_validation", "Bad special document member: _x")),
        ({"_rev": "x"}, (400, "bad_request", "Invalid rev format")),
        ({"_rev": 7}, (400, "bad_request", "Invalid rev format")),
        ({"_id": 7}, (400, "illegal_docid", "Document id must be a string")),
    ],
)
def test_special_members_must_be_right(db, document, told):
    assert db.send("POST", "/db", document).told() == told


@pytest.mark.parametrize("name", ["_x", "_all_doc", "_"])
def test_ids_that_begin_with_an_underscore_are_reserved(db, name):
    told = (400, "illegal_docid", "Only reserved document ids may start with underscore.")
    assert db.send("PUT", f"/db/{name}", {}).told() == told
    assert db.send("POST", "/db", {"_id": name}).told() == told
    assert db.send("POST", "/db", {"_id": ""}).told() == (400, "illegal_docid", "Document id must not be empty")


def test_deep_nesting_is_refused_and_not_followed(db):
    deep = b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    assert db.send("PUT", "/db/a", deep).status == 400
    assert db.send("POST", "/db/_bulk_docs", b'{"docs":[' + deep + b"]}").status == 400
    assert db.send("POST", "/db/_find", b'{"selector":' + deep + b"}").status == 400
    assert db.ok("GET", "/db")["doc_count"] == 0


def test_a_document_that_is_too_large_is_refused(db):
    assert db.send("PUT", "/db/a", {"x": "y" * 8_000_001}).told() == (413, "document_too_large", "a")
    db.ok("PUT", "/db/a", {"x": "y" * 7_900_000})


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server, db):
    before = procfs.rss_bytes(server.pid) if hasattr(procfs, "rss_bytes") else None
    with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
        head = f"PUT /db/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {100 * MIB}\r\n\r\n"
        connection.sendall(head.encode())
        reply = connection.recv(4096)
        assert reply.startswith(b"HTTP/1.1 413 ")
        assert b'{"error":"too_large","reason":"the request entity is too large"}' in reply
    # Without a declared length it is refused as soon as it is too large.
    with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
        connection.sendall(b"PUT /db/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + bytes(MIB) + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(100):
                connection.sendall(piece)
        with contextlib.suppress(OSError):
            assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
    assert db.ok("GET", "/db")["doc_count"] == 0
    if before is not None:
        assert procfs.rss_bytes(server.pid) < before + 200 * MIB


def test_compressed_bodies_are_read_and_bombs_are_not(db):
    body = gzip.compress(json.dumps({"x": 1}).encode())
    db.ok("PUT", "/db/a", body, Content_Encoding="gzip")
    assert db.ok("GET", "/db/a")["x"] == 1
    bomb = gzip.compress(b'{"x":"' + bytes(100 * MIB) + b'"}')
    assert db.send("PUT", "/db/b", bomb, Content_Encoding="gzip").told()[:2] == (413, "too_large")
    with Couch(db._connection.port) as other:
        assert other.send("PUT", "/db/b", b"nonsense", Content_Encoding="gzip").status == 400
        assert other.send("PUT", "/db/b", body[:-9], Content_Encoding="gzip").status == 400
        assert other.send("PUT", "/db/b", body, Content_Encoding="br").status == 415


@pytest.mark.parametrize(
    "path",
    [
        "/db/a?rev=",
        "/db/a?rev=1-",
        "/db/a?rev=0-" + "a" * 32,
        "/db/a?rev=99999999999-" + "a" * 32,
        "/db/a?rev=1-" + "g" * 32,
        "/db/a?rev=-1-" + "a" * 32,
    ],
)
def test_revisions_that_are_none_are_refused(db, path):
    db.put("db", {"_id": "a"})
    assert db.get(path).told() == (400, "bad_request", "Invalid rev format")


def test_paths_that_are_no_text_are_refused(db):
    assert db.get("/db/%ff").status == 400
    assert db.get("/db/a?rev=%ff").status == 400
    assert db.get("/%00").status == 404
    assert db.get("/db/" + "x" * 60_000).status in (404, 414, 431)


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\na: " + b"b" * 1_000_000 + b"\r\n\r\n",
        b"PUT /db HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"PUT /db HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"PUT /db/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        bytes(range(256)) * 100,
    ],
)
def test_what_is_no_http_ends_its_connection_only(server, couch, sent):
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    assert couch.get("/_up").status == 200


def test_random_bodies_and_queries_never_break_a_server(db, request):
    """A few hundred random requests to every endpoint that accepts a body."""
    import random

    chance = random.Random(request.config.getoption("seed"))
    paths = ["_bulk_docs", "_bulk_get", "_revs_diff", "_missing_revs", "_all_docs", "_changes", "_find", "_index"]
    paths += ["_explain", "_purge", "_all_docs/queries", "a", "_local/a", "_design/a", "_security", "_revs_limit"]
    values = [None, True, 7, -1, 1e300, "", "a", "1-" + "a" * 32, [], {}, ["a"], {"a": ["1-x"]}, [{}], {"$x": 1}]
    names = ["docs", "keys", "doc_ids", "selector", "queries", "new_edits", "limit", "_id", "_rev", "_revisions"]
    names += ["_attachments", "index", "fields", "a", "since", "feed"]
    for _ in range(400):
        body = {chance.choice(names): chance.choice(values) for _ in range(chance.randrange(4))}
        sent = json.dumps(chance.choice([body, [body], chance.choice(values)])).encode()
        if chance.random() < 0.2:
            sent = bytearray(sent)
            sent[chance.randrange(len(sent))] = chance.randrange(256)
        query = "&".join(
            f"{chance.choice(names)}={json.dumps(chance.choice(values)).replace(' ', '')}"
            for _ in range(chance.randrange(3))
        )
        answer = db.send(chance.choice(["POST", "PUT"]), f"/db/{chance.choice(paths)}?timeout=1&{query}", bytes(sent))
        assert answer.status < 500, (answer.status, answer.body)
    assert db.get("/_up").status == 200


def test_files_of_random_bytes_are_only_bodies(db):
    for _ in range(20):
        assert db.send("PUT", "/db/a", os.urandom(1000)).status == 400
