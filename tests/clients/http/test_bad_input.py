"""For any input, the answer is a clear error, and the next request is answered."""

import contextlib
import gzip
import json
import os
import socket

import pytest

from harness import procfs
from harness.couch import Couch, revision

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
        b'{"\\ud800":1}',
        b'{"n":1e310}',
        b'{"n":[{"x":-1e310}]}',
        b'{"n":' + b"9" * 400 + b"}",
        b'{"_attachments":{"f":{"data":"","length":1e310}}}',
        b'{"_attachments":{"f":{"data":"","content_type":"\\ud800"}}}',
        b"{'a':1}",
        b'{"a":01}',
        b'{"a":1,}',
        b"\x00",
        b"\xef\xbb\xbf{}",
    ],
)
def test_invalid_json_is_refused_on_every_path(db, body):
    assert db.send("PUT", "/db/a", body).told() == INVALID
    assert db.send("PUT", "/db/a?new_edits=false", body).told() == INVALID
    assert db.send("PUT", "/db/_local/a", body).told() == INVALID
    assert db.send("PUT", "/db/_design/a", body).told() == INVALID
    assert db.send("POST", "/db", body).told() == INVALID
    assert db.send("POST", "/db/_bulk_docs", b'{"docs":[' + body + b"]}").status == (201 if body == b"" else 400)
    with socket.create_connection(("127.0.0.1", db.server.port)) as connection:
        parts = [b"DOC.PUT", b"db", b"a", body]
        command = b"*4\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        connection.sendall(command)
        assert connection.recv(4096) == b"-BADREQUEST invalid UTF-8 JSON\r\n"
    assert db.ok("GET", "/db")["doc_count"] == 0


@pytest.mark.parametrize("number", [b"1e308", b"1e-400", b"123456789012345678901234567890", b"-0.0"])
def test_numbers_that_a_double_holds_are_kept_as_they_are_written(db, number):
    db.ok("PUT", "/db/a", b'{"n":' + number + b"}")
    assert number in db.get("/db/a").body


@pytest.mark.parametrize(("depth", "status"), [(255, 201), (256, 400)])
def test_nesting_has_one_limit_on_every_path(db, depth, status):
    document = b'{"_id":"%s","n":' + b"[" * depth + b"]" * depth + b"}"
    assert db.send("PUT", "/db/a", document % b"a").status == status
    assert db.send("PUT", "/db/_local/a", document % b"a").status == status
    assert db.send("POST", "/db", document % b"b").status == status
    assert db.send("POST", "/db/_bulk_docs", b'{"docs":[%s]}' % (document % b"c")).status == status
    rev = b'"_rev":"%s","n":' % revision(1, "a").encode()
    replicated = b'{"new_edits":false,"docs":[%s]}' % (document % b"d").replace(b'"n":', rev)
    answer = db.send("POST", "/db/_bulk_docs", replicated)
    assert answer.status == 201
    assert len(answer.json) == (0 if status == 201 else 1)


BAD_DOCUMENTS = [
    (b'{"_id":"x","_rev":"%s","n":1e310}', b'"x"', "invalid UTF-8 JSON"),
    (b'{"_id":"x","_rev":"%s","n":"\\ud800"}', b'"x"', "invalid UTF-8 JSON"),
    (b'{"_rev":"%s","_id":"\\ud800"}', b'"\\ud800"', "invalid UTF-8 JSON"),
    (b'{"_id":"' + b"x" * 3000 + b'","_rev":"%s"}', b'"' + b"x" * 3000 + b'"', "Document id is too long"),
    (b'{"_id":"_x","_rev":"%s"}', b'"_x"', "Only reserved document ids may start with underscore."),
    (b'{"_id":"x","_rev":"%s","_x":1}', b'"x"', "Bad special document member: _x"),
    (
        b'{"_id":"x","_rev":"%s","n":' + b"[" * 300 + b"]" * 300 + b"}",
        b'"x"',
        "JSON is nested deeper than 256 levels",
    ),
    (
        b'{"_id":"x","_rev":"%s","_attachments":{"_f":{"data":""}}}',
        b'"x"',
        "Attachment name '_f' starts with prohibited character '_'",
    ),
]


@pytest.mark.parametrize(("bad", "name", "reason"), BAD_DOCUMENTS)
@pytest.mark.parametrize("new_edits_first", [True, False])
def test_a_replicated_document_that_breaks_a_rule_fails_alone(db, bad, name, reason, new_edits_first):
    rev = revision(1, "a").encode()
    docs = b'"docs":[{"_id":"a","_rev":"%s"},%s,{"_id":"b","_rev":"%s"}]' % (rev, bad % rev, rev)
    members = [b'"new_edits":false', docs]
    answer = db.send("POST", "/db/_bulk_docs", b"{%s}" % b",".join(members if new_edits_first else members[::-1]))
    assert answer.status == 201
    [row] = answer.json
    assert (row["rev"], row["error"], row["name"], row["reason"]) == (rev.decode(), "forbidden", "forbidden", reason)
    assert b'"id":' + name in answer.body
    assert [row["id"] for row in db.ok("GET", "/db/_all_docs")["rows"]] == ["a", "b"]
    # A document of the client's own has the whole request refused.
    refused = db.send("POST", "/db/_bulk_docs", b'{"docs":[{"_id":"c"},%s]}' % (bad % rev))
    assert refused.status in (400, 413)
    assert db.get("/db/c").status == 404


def test_a_local_document_with_a_revision_of_a_tree_fails_alone(db):
    rev = revision(1, "a")
    docs = [{"_id": name, "_rev": rev} for name in ("a", "_local/a", "b")]
    [row] = db.ok("POST", "/db/_bulk_docs", {"docs": docs, "new_edits": False})
    assert (row["id"], row["error"]) == ("_local/a", "bad_request")
    assert [row["id"] for row in db.ok("GET", "/db/_all_docs")["rows"]] == ["a", "b"]
    assert db.send("POST", "/db/_bulk_docs", {"docs": [{"_id": "c"}, docs[1]]}).status == 400
    assert db.get("/db/c").status == 404


def test_a_replicated_document_that_is_too_large_fails_alone(db):
    docs = [{"_id": name, "_rev": revision(1, "a"), "x": "y" * size} for name, size in [("a", 1), ("b", 8_000_001)]]
    [row] = db.ok("POST", "/db/_bulk_docs", {"docs": docs, "new_edits": False})
    assert (row["id"], row["error"], row["reason"]) == ("b", "forbidden", "document_too_large: b")
    assert db.get("/db/a").status == 200


def test_the_size_of_a_document_has_one_limit_on_every_path(db):
    db.ok("PUT", "/_node/_local/_config/couchdb/max_document_size", b'"2000"')
    body = json.dumps({"x": "y" * 3000}).encode()
    assert db.send("PUT", "/db/a", body).status == 413
    with socket.create_connection(("127.0.0.1", db.server.port)) as connection:
        connection.sendall(b"*4\r\n$7\r\nDOC.PUT\r\n$2\r\ndb\r\n$1\r\na\r\n$%d\r\n%s\r\n" % (len(body), body))
        assert connection.recv(4096).startswith(b"-DOCUMENTTOOLARGE ")


def _raw(server, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as connection:
        connection.sendall(request)
        reply = b""
        while part := connection.recv(4096):
            reply += part
        return reply


@pytest.mark.parametrize("path", ["/", "/_up", "/db/a", "/metrics"])
def test_a_request_has_one_host(server, db, path):
    db.ok("PUT", "/db/a", {})
    for hosts in ["", "Host: localhost\r\nHost: localhost\r\n"]:
        reply = _raw(server, f"GET {path} HTTP/1.1\r\n{hosts}\r\n".encode())
        assert reply.startswith(b"HTTP/1.1 400 ")
        assert b'{"error":"bad_request","reason":' in reply
    assert b" 200 " in _raw(server, f"GET {path} HTTP/1.0\r\n\r\n".encode())[:20]


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "deflate, chunked"])
def test_the_only_transfer_coding_is_chunked(server, db, coding):
    head = "PUT /db/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = gzip.compress(b"{}")
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    reply = _raw(server, f"{head}Transfer-Encoding: {coding}\r\n\r\n".encode() + chunk)
    assert reply.startswith(b"HTTP/1.1 501 ")
    assert b'"error":"not_implemented"' in reply
    assert db.get("/db/a").status == 404


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
def test_invalid_revisions_are_refused(db, path):
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
def test_invalid_http_ends_its_connection_only(server, couch, sent):
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
