"""Attachments: in requests of their own, inline, in parts, deduplicated."""

import base64
import hashlib
import os

import pytest

from harness.couch import revision

pytestmark = pytest.mark.sheaf_only

MIB = 1 << 20


def _digest(content):
    return "md5-" + base64.b64encode(hashlib.md5(content).digest()).decode()


@pytest.mark.parametrize("size", [0, 5, 256 * 1024, 256 * 1024 + 1, 3 * MIB])
def test_an_attachment_is_read_back_unchanged(db, size):
    content = os.urandom(size)
    answer = db.send("PUT", "/db/a/deep/name.bin", content, Content_Type="image/png")
    assert answer.status == 201
    rev = answer.json["rev"]
    answer = db.get("/db/a/deep/name.bin", Accept="")
    assert answer.body == content
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["Content-Length"] == str(size)
    assert answer.headers["ETag"] == f'"{_digest(content)[4:]}"'
    assert answer.headers["Content-MD5"] == _digest(content)[4:]
    stub = db.ok("GET", "/db/a")["_attachments"]["deep/name.bin"]
    assert stub == {"content_type": "image/png", "revpos": 1, "digest": _digest(content), "length": size, "stub": True}
    head = db.send("HEAD", "/db/a/deep/name.bin")
    assert (head.status, head.headers["Content-Length"]) == (200, str(size))
    again = db.get("/db/a/deep/name.bin", If_None_Match=answer.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    assert db.send("PUT", "/db/a/other", b"x", Content_Type="text/plain").told()[:2] == (409, "conflict")
    second = db.ok("PUT", f"/db/a/other?rev={rev}", b"x", Content_Type="text/plain")["rev"]
    assert db.get("/db/a/deep/name.bin").body == content, "the other is kept"
    third = db.ok("DELETE", f"/db/a/deep/name.bin?rev={second}")["rev"]
    assert list(db.ok("GET", "/db/a")["_attachments"]) == ["other"]
    assert db.get("/db/a/deep/name.bin").told() == (404, "not_found", "Document is missing attachment")
    assert db.ok("GET", "/db/a")["_rev"] == third


@pytest.mark.parametrize("size", [5, 3 * MIB])
def test_bytes_without_the_digest_that_was_announced_are_refused(db, size):
    content = os.urandom(size)
    digest = _digest(content)[4:]
    for wrong in (_digest(content + b"x")[4:], "no digest", digest[:-4]):
        answer = db.send("PUT", "/db/a/b", content, Content_MD5=wrong)
        assert answer.told() == (400, "content_md5_mismatch", "Possible message corruption.")
    assert db.get("/db/a").status == 404, "nothing was stored"
    db.ok("PUT", "/db/a/b", content, Content_MD5=digest)
    assert db.get("/db/a/b").body == content


def test_parts_are_given_as_asked_for(db):
    content = os.urandom(300_000)
    db.ok("PUT", "/db/a/b", content, Content_Type="application/octet-stream")
    assert db.get("/db/a/b").headers["Accept-Ranges"] == "bytes"
    for asked, first, end in [
        ("bytes=0-9", 0, 10),
        ("bytes=262140-262150", 262140, 262151),
        ("bytes=-5", 299_995, 300_000),
        ("bytes=299999-", 299_999, 300_000),
        ("bytes=10-999999", 10, 300_000),
    ]:
        answer = db.get("/db/a/b", Range=asked)
        assert answer.status == 206, asked
        assert answer.body == content[first:end], asked
        assert answer.headers["Content-Range"] == f"bytes {first}-{end - 1}/300000"
        assert answer.headers["Content-Length"] == str(end - first)
    answer = db.get("/db/a/b", Range="bytes=300000-")
    assert answer.told()[:2] == (416, "requested_range_not_satisfiable")
    assert answer.headers["Content-Range"] == "bytes */300000"
    assert db.get("/db/a/b", Range="nonsense").status == 200


def test_attachments_come_inline_with_their_document(db):
    data = base64.b64encode(b"hello").decode()
    document = {"_id": "a", "_attachments": {"x.txt": {"content_type": "text/plain", "data": data}}}
    rev = db.put("db", document)
    assert db.get("/db/a/x.txt").body == b"hello"
    inline = db.ok("GET", "/db/a?attachments=true")["_attachments"]["x.txt"]
    assert inline == {"content_type": "text/plain", "revpos": 1, "digest": _digest(b"hello"), "data": data}
    row = db.ok("GET", "/db/_all_docs?include_docs=true&attachments=true")["rows"][0]
    assert row["doc"]["_attachments"]["x.txt"]["data"] == data
    stub = {"x.txt": {"stub": True, "content_type": "text/plain"}}
    second = db.put("db", {"_id": "a", "_rev": rev, "n": 2, "_attachments": stub})
    assert db.ok("GET", "/db/a")["_attachments"]["x.txt"]["revpos"] == 1
    third = db.put("db", {"_id": "a", "_rev": second})
    assert "_attachments" not in db.ok("GET", "/db/a"), "what is not named is gone"
    assert db.ok("GET", "/db/a")["_rev"] == third


def test_a_stub_needs_a_parent_with_the_attachment(db):
    stub = {"_attachments": {"x": {"stub": True}}}
    assert db.send("PUT", "/db/a", stub).told() == (412, "missing_stub", "Invalid attachment stub in a for x")
    rev = db.put("db", {"_id": "b"})
    assert db.send("PUT", "/db/b", stub | {"_rev": rev}).told()[:2] == (412, "missing_stub")


def test_invalid_attachments_are_refused(db):
    for attachments, told in [
        ({"x": {"data": "%%%"}}, 400),
        ({"x": 7}, 400),
        (7, 400),
        ({"_x": {"data": ""}}, 400),
        ({"": {"data": ""}}, 400),
    ]:
        answer = db.send("PUT", "/db/a", {"_attachments": attachments})
        assert answer.status == told, (attachments, answer.body)
    assert db.send("PUT", "/db/a/x", b"bytes", Content_Type="text/\xff").told()[:2] == (400, "bad_request")
    assert db.get("/db/a").status == 404


def test_a_replicated_attachment_keeps_its_place(db):
    data = base64.b64encode(b"hello").decode()
    attachment = {"content_type": "text/plain", "revpos": 1, "data": data}
    document = {"_id": "a", "_rev": revision(2, "b"), "_attachments": {"x": attachment}}
    document["_revisions"] = {"start": 2, "ids": ["b" * 32, "a" * 32]}
    assert db.ok("POST", "/db/_bulk_docs", {"docs": [document], "new_edits": False}) == []
    assert db.ok("GET", "/db/a")["_attachments"]["x"]["revpos"] == 1
    assert db.get(f"/db/a/x?rev={revision(2, 'b')}").body == b"hello"


def test_an_upload_that_breaks_off_leaves_nothing(server, db):
    import socket

    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.http_port)) as broken:
            broken.sendall(b"PUT /db/a/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n" + bytes(600_000))
    assert db.get("/db/a").status == 404
    db.ok("PUT", "/db/a/x", bytes(600_000), Content_Type="a/b")
    assert len(db.get("/db/a/x").body) == 600_000


def test_attachments_survive_a_kill(new_server):
    from harness.couch import Couch

    server = new_server().start()
    content = os.urandom(700_000)
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/db")
        couch.ok("PUT", "/db/a/big", content, Content_Type="a/b")
        couch.ok("PUT", "/db/b/small", b"x", Content_Type="a/b")
    server.kill()
    server.start()
    with Couch(server.http_port) as couch:
        assert couch.get("/db/a/big").body == content
        assert couch.get("/db/b/small").body == b"x"
