"""Documents: written, read in all ways, deleted, copied."""

import re
from urllib.parse import quote

import pytest

from harness.couch import revision

pytestmark = pytest.mark.sheaf_only

CONFLICT = (409, "conflict", "Document update conflict.")
MISSING = (404, "not_found", "missing")
DELETED = (404, "not_found", "deleted")


def test_a_document_is_written_read_changed_and_deleted(db):
    answer = db.send("PUT", "/db/a", {"x": 1})
    assert answer.status == 201
    first = answer.json["rev"]
    assert answer.json == {"ok": True, "id": "a", "rev": first}
    assert re.fullmatch("1-[0-9a-f]{32}", first)
    assert answer.headers["ETag"] == f'"{first}"'
    assert answer.headers["Location"].endswith("/db/a")
    answer = db.get("/db/a")
    assert answer.json == {"_id": "a", "_rev": first, "x": 1}
    assert answer.headers["ETag"] == f'"{first}"'
    second = db.put("db", {"_id": "a", "_rev": first, "x": 2})
    assert second.startswith("2-")
    answer = db.send("DELETE", f"/db/a?rev={second}")
    assert answer.status == 200
    third = answer.json["rev"]
    assert third.startswith("3-")
    assert db.get("/db/a").told() == DELETED
    assert db.ok("GET", f"/db/a?rev={third}") == {"_id": "a", "_rev": third, "_deleted": True}
    assert db.get("/db/b").told() == MISSING
    fourth = db.put("db", {"_id": "a", "x": 4})
    assert fourth.startswith("4-"), "it goes on where it was deleted"


def test_the_same_edit_has_the_same_revision_everywhere(couch):
    revisions = []
    for name in ["one", "two"]:
        couch.ok("PUT", f"/{name}")
        first = couch.put(name, {"_id": "a", "x": [1, {"y": None}]})
        revisions.append((first, couch.put(name, {"_id": "a", "_rev": first, "x": 2})))
    assert revisions[0] == revisions[1]


def test_an_edit_must_name_the_current_revision(db):
    first = db.put("db", {"_id": "a"})
    assert db.send("PUT", "/db/a", {}).told() == CONFLICT
    assert db.send("PUT", "/db/a", {"_rev": revision(1, "f")}).told() == CONFLICT
    assert db.send("PUT", "/db/new", {"_rev": revision(1, "f")}).told() == CONFLICT
    second = db.ok("PUT", f"/db/a?rev={first}", {})["rev"]
    assert db.send("PUT", "/db/a", {}, If_Match=f'"{first}"').told() == CONFLICT
    third = db.ok("PUT", "/db/a", {}, If_Match=f'"{second}"')["rev"]
    fourth = db.ok("PUT", "/db/a", {}, If_Match=third)["rev"]
    assert db.send("PUT", f"/db/a?rev={fourth}", {"_rev": third}).told() == (
        400,
        "bad_request",
        "Document rev from request body and query string have different values",
    )
    assert db.send("DELETE", "/db/a").told() == CONFLICT
    assert db.send("DELETE", "/db/none").told() == MISSING
    assert db.send("DELETE", f"/db/a?rev={third}").told() == CONFLICT
    assert db.ok("DELETE", "/db/a", If_Match=fourth)["rev"].startswith("5-")


def test_a_document_without_an_id_gets_one(db):
    answer = db.send("POST", "/db", {"x": 1})
    assert answer.status == 201
    assert re.fullmatch("[0-9a-f]{32}", answer.json["id"])
    assert db.ok("GET", f"/db/{answer.json['id']}")["x"] == 1
    assert db.ok("POST", "/db", {"_id": "own"})["id"] == "own"
    assert db.send("POST", "/db", b"{}", Content_Type="text/plain").told() == (
        415,
        "bad_content_type",
        "Content-Type must be application/json",
    )


def test_members_keep_their_order_and_numbers_their_digits(db):
    text = b'{"z":1,"a":1.0,"big":12345678901234567890123,"e":1e300,"s":"\\u00e4\\ud83d\\ude00","o":{"b":[],"a":{}}}'
    db.ok("PUT", "/db/a", text)
    read = db.get("/db/a").body
    assert read.index(b'"z":1') < read.index(b'"a":1.0') < read.index(b'"big":12345678901234567890123')
    assert b'"e":1e300' in read


@pytest.mark.parametrize("name", ["a/b", "ä ö", "a+b", "a%b", "?", "日本", " ", "a\nb", "x" * 1000])
def test_an_id_may_be_any_text(db, name):
    path = f"/db/{quote(name, safe='')}"
    rev = db.ok("PUT", path, {"x": 1})["rev"]
    assert db.ok("GET", path) == {"_id": name, "_rev": rev, "x": 1}
    assert [row["id"] for row in db.ok("GET", "/db/_all_docs")["rows"]] == [name]
    assert db.ok("GET", "/db/_changes")["results"][0]["id"] == name


def test_a_client_with_the_current_version_gets_304(db):
    rev = db.put("db", {"_id": "a"})
    answer = db.get("/db/a", If_None_Match=f'"{rev}"')
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers["ETag"] == f'"{rev}"'
    assert db.get("/db/a", If_None_Match=f'"{revision(1, "0")}"').status == 200
    head = db.send("HEAD", "/db/a")
    assert head.status == 200
    assert head.headers["ETag"] == f'"{rev}"'
    assert head.headers["Content-Length"] == str(len(db.get("/db/a").body))
    assert db.send("HEAD", "/db/none").status == 404


def test_the_history_of_a_document_can_be_requested(db):
    first = db.put("db", {"_id": "a", "x": 1})
    second = db.put("db", {"_id": "a", "x": 2, "_rev": first})
    read = db.ok("GET", "/db/a?revs=true")
    assert read["_revisions"] == {"start": 2, "ids": [second[2:], first[2:]]}
    read = db.ok("GET", "/db/a?revs_info=true")
    assert read["_revs_info"][0] == {"rev": second, "status": "available"}
    assert read["_revs_info"][1]["rev"] == first
    assert db.ok("GET", "/db/a?local_seq=true")["_local_seq"] == 2
    assert db.get(f"/db/a?rev={revision(1, '0')}").told() == MISSING
    assert db.get("/db/a?rev=nonsense").told() == (400, "bad_request", "Invalid rev format")
    meta = db.ok("GET", "/db/a?meta=true")
    assert "_revs_info" in meta


def _two_branches(db):
    """A document with a conflict: the winner and the other leaf."""
    for digit in "ab":
        document = {"_id": "a", "x": digit, "_rev": revision(2, digit)}
        document["_revisions"] = {"start": 2, "ids": [digit * 32, "0" * 32]}
        assert db.ok("POST", "/db/_bulk_docs", {"docs": [document], "new_edits": False}) == []
    return revision(2, "b"), revision(2, "a")


def test_conflicts_are_kept_and_the_greater_revision_wins(db):
    winner, other = _two_branches(db)
    assert db.ok("GET", "/db/a?conflicts=true") == {"_id": "a", "_rev": winner, "x": "b", "_conflicts": [other]}
    assert db.ok("GET", f"/db/a?rev={other}")["x"] == "a"
    resolved = db.ok("DELETE", f"/db/a?rev={winner}")["rev"]
    assert resolved.startswith("3-")
    read = db.ok("GET", "/db/a?conflicts=true&deleted_conflicts=true")
    assert read["_rev"] == other, "a leaf that is not deleted wins"
    assert "_conflicts" not in read
    assert read["_deleted_conflicts"] == [resolved]


def test_all_leaves_or_some_revisions_are_read_at_once(db):
    winner, other = _two_branches(db)
    leaves = db.ok("GET", "/db/a?open_revs=all")
    assert {leaf["ok"]["_rev"] for leaf in leaves} == {winner, other}
    some = db.ok("GET", f'/db/a?open_revs=["{other}","{revision(9, "9")}"]&revs=true')
    assert some[0]["ok"]["_revisions"]["ids"] == [other[2:], "0" * 32]
    assert some[1] == {"missing": revision(9, "9")}
    latest = db.ok("GET", f'/db/a?open_revs=["{revision(1, "0")}"]&latest=true')
    assert {leaf["ok"]["_rev"] for leaf in latest} == {winner, other}
    assert db.get("/db/a?open_revs=nonsense").status == 400


def test_local_documents_are_beside_the_others(db):
    answer = db.send("PUT", "/db/_local/check", {"last_seq": 1})
    assert answer.status == 201
    assert answer.json == {"ok": True, "id": "_local/check", "rev": "0-1"}
    assert db.ok("GET", "/db/_local/check") == {"_id": "_local/check", "_rev": "0-1", "last_seq": 1}
    assert db.ok("PUT", "/db/_local/check", {})["rev"] == "0-1", "the last write wins"
    assert db.ok("PUT", "/db/_local/check", {"_rev": "0-41"})["rev"] == "0-42"
    assert db.send("PUT", "/db/_local/check", {"_rev": revision(1, "a")}).told()[:2] == (400, "bad_request")
    assert db.ok("PUT", "/db/_local/check", {"_rev": "0-1", "last_seq": 2})["rev"] == "0-2"
    assert db.ok("PUT", "/db/_local%2Fcheck", {"_rev": "0-2"})["rev"] == "0-3"
    assert db.get("/db/_local/none").told() == MISSING
    assert db.ok("GET", "/db")["doc_count"] == 0
    assert db.ok("GET", "/db/_changes")["results"] == []
    assert db.ok("DELETE", "/db/_local/check?rev=0-3") == {"ok": True, "id": "_local/check", "rev": "0-0"}
    assert db.get("/db/_local/check").told() == MISSING
    assert db.send("DELETE", "/db/_local/check?rev=0-3").told() == MISSING
    db.ok("PUT", "/db/_local/check", {})
    assert db.ok("DELETE", "/db/_local/check")["rev"] == "0-0"


def test_a_plus_in_a_path_is_a_space(db):
    db.ok("PUT", "/db/a+b", {"n": 1})
    assert db.ok("GET", "/db/a%20b")["_id"] == "a b"
    assert db.get("/db/a%2Bb").status == 404
    answer = db.send("PUT", "/db/a%2Bb", {})
    assert answer.headers["Location"].endswith("/db/a%2Bb"), "the URL that was made leads to the document"
    assert db.ok("GET", "/db/a%2Bb")["_id"] == "a+b"
    rev = db.ok("GET", "/db/a+b")["_rev"]
    db.ok("PUT", f"/db/a+b/f+1.txt?rev={rev}", b"x", Content_Type="text/plain")
    assert list(db.ok("GET", "/db/a+b")["_attachments"]) == ["f 1.txt"]
    assert db.ok("COPY", "/db/a%2Bb", Destination="c+d")["id"] == "c d"
    assert db.send("PUT", "/x+y").told()[:2] == (400, "illegal_database_name")
    assert db.send("PUT", "/x%2By").status == 201


def test_a_post_may_stand_for_another_method(db):
    override = {"X_HTTP_Method_Override": "PUT"}
    assert db.send("POST", "/db/a", {"n": 1}, **override).status == 201
    rev = db.ok("POST", "/db/a", X_HTTP_Method_Override="GET")["_rev"]
    assert db.ok("POST", "/db/a", X_HTTP_Method_Override="HEAD")["n"] == 1, "a reply to a POST has a body"
    assert db.send("POST", "/db/a", Destination="b", X_HTTP_Method_Override="COPY").status == 201
    assert db.send("GET", f"/db/a?rev={rev}", X_HTTP_Method_Override="DELETE").status == 200, "only a POST does"
    assert db.send("POST", f"/db/a?rev={rev}", X_HTTP_Method_Override="PATCH").status == 405
    assert db.ok("POST", f"/db/a?rev={rev}", X_HTTP_Method_Override="DELETE")["ok"] is True
    assert db.get("/db/a").status == 404
    page = {"Origin": "http://other.example"}
    assert db.send("POST", "/db/b", X_HTTP_Method_Override="DELETE", **page).told()[:2] == (403, "forbidden")


@pytest.mark.parametrize(
    ("headers", "start"),
    [
        ({}, "http://127.0.0.1:"),
        ({"X_Forwarded_Host": "app.example"}, "http://app.example/db/"),
        ({"X_Forwarded_Host": "app.example, inner:80", "X_Forwarded_Proto": "https"}, "https://app.example/db/"),
        ({"X_Forwarded_Host": "app.example", "X_Forwarded_Ssl": "on"}, "https://app.example/db/"),
        ({"X_Forwarded_Host": "app.example", "X_Forwarded_Proto": "gopher"}, "http://app.example/db/"),
    ],
)
def test_the_location_is_the_one_that_the_client_of_a_proxy_sees(db, headers, start):
    answer = db.send("PUT", "/db/a", {}, **headers)
    assert answer.status == 201
    assert answer.headers["Location"].startswith(start)


def test_design_documents_keep_their_slash(db):
    rev = db.ok("PUT", "/db/_design/x", {"views": {}})["rev"]
    assert db.ok("GET", "/db/_design/x")["_id"] == "_design/x"
    assert db.ok("GET", "/db/_design%2Fx")["_rev"] == rev
    assert db.ok("DELETE", f"/db/_design/x?rev={rev}")["id"] == "_design/x"


def test_a_copy_has_another_id(db):
    rev = db.put("db", {"_id": "a", "x": 1})
    answer = db.send("COPY", "/db/a", Destination="b")
    assert answer.status == 201
    copied = answer.json["rev"]
    assert db.ok("GET", "/db/b") == {"_id": "b", "_rev": copied, "x": 1}
    assert db.send("COPY", "/db/a", Destination="b").told() == CONFLICT
    again = db.ok("COPY", f"/db/a?rev={rev}", Destination=f"b?rev={copied}")["rev"]
    assert again.startswith("2-")
    assert db.send("COPY", "/db/a").told() == (400, "bad_request", "Destination header is mandatory for COPY.")
    assert db.send("COPY", "/db/none", Destination="c").told() == MISSING


def test_batch_is_a_promise_as_any_other(db):
    answer = db.send("PUT", "/db/a?batch=ok", {"x": 1})
    assert answer.status == 202
    assert answer.json["ok"] is True
    assert db.ok("GET", "/db/a")["x"] == 1


def test_purged_revisions_leave_no_trace(db):
    winner, other = _two_branches(db)
    answer = db.send("POST", "/db/_purge", {"a": [winner, revision(7, "7")], "none": [winner]})
    assert answer.status == 201
    assert answer.json["purged"]["a"] == [winner]
    assert db.ok("GET", "/db/a?conflicts=true") == {"_id": "a", "_rev": other, "x": "a"}
    db.ok("POST", "/db/_purge", {"a": [other]})
    assert db.get("/db/a").told() == MISSING
    assert db.ok("GET", "/db")["doc_count"] == 0
    assert db.send("POST", "/db/_purge", {"a": ["nonsense"]}).status == 400
