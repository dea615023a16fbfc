"""Many documents at once: requests of replication and of applications with batches."""

import pytest

from harness.couch import Couch, revision

pytestmark = pytest.mark.sheaf_only


def test_each_document_of_a_batch_succeeds_or_fails_alone(db):
    db.put("db", {"_id": "there"})
    docs = [{"_id": "a", "x": 1}, {"_id": "there"}, {"x": 2}, {"_id": "a", "x": 3}]
    answer = db.send("POST", "/db/_bulk_docs", {"docs": docs})
    assert answer.status == 201
    a, there, own, again = answer.json
    assert (a["ok"], a["id"]) == (True, "a")
    conflict = {"error": "conflict", "reason": "Document update conflict."}
    assert there == {"id": "there"} | conflict
    assert own["ok"] is True
    assert len(own["id"]) == 32
    assert again == {"id": "a"} | conflict, "the second edit sees the first"
    assert db.ok("GET", "/db/a")["x"] == 1


def test_edits_of_others_are_taken_as_they_are(db):
    def document(digit, ancestors):
        ids = [digit * 32, *ancestors]
        return {"_id": "a", "_rev": revision(len(ids), digit), "_revisions": {"start": len(ids), "ids": ids}}

    child = document("b", ["a" * 32])
    assert db.ok("POST", "/db/_bulk_docs", {"docs": [child], "new_edits": False}) == []
    before = db.ok("GET", "/db")["update_seq"]
    assert db.ok("POST", "/db/_bulk_docs", {"docs": [child], "new_edits": False}) == [], "again: nothing happens"
    assert db.ok("GET", "/db")["update_seq"] == before
    assert db.ok("POST", "/db/_bulk_docs", {"docs": [document("a", [])], "new_edits": False}) == []
    assert db.ok("GET", "/db/a?conflicts=true")["_rev"] == revision(2, "b"), "an ancestor that comes late is no leaf"
    bad = [{"_id": "x", "_rev": "nonsense"}, {"_id": "_x", "_rev": revision(1, "a")}]
    told = db.send("POST", "/db/_bulk_docs", {"docs": bad, "new_edits": False})
    assert told.status in (201, 400)
    put = db.ok("PUT", "/db/one?new_edits=false", document("c", []) | {"_id": "one"})
    assert put["rev"] == revision(1, "c")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, (400, "bad_request", "POST body must include `docs` parameter.")),
        ({"docs": 7}, (400, "bad_request", "`docs` parameter must be an array.")),
        ({"docs": [], "new_edits": 7}, (400, "bad_request", "`new_edits` parameter must be a boolean.")),
        ([], (400, "bad_request", "Request body must be a JSON object")),
        (b"{", (400, "bad_request", "invalid UTF-8 JSON")),
        ({"docs": [7]}, (400, "bad_request", "Document must be a JSON object")),
        ({"docs": [{"_x": 1}]}, (400, "doc_validation", "Bad special document member: _x")),
    ],
)
def test_an_invalid_batch_is_refused(db, body, told):
    assert db.send("POST", "/db/_bulk_docs", body).told() == told


@pytest.mark.parametrize(
    ("last", "new_edits"),
    [({"_id": "x", "_rev": "0-1"}, True), ({"_id": "_local/x", "_rev": revision(1, "a")}, True), ({"_id": "x"}, False)],
)
def test_a_batch_with_a_malformed_document_is_refused_before_any_is_written(db, last, new_edits):
    """There are more documents than the server submits to its log at once."""
    docs = [{"_id": f"a{number}"} for number in range(3000)]
    if not new_edits:
        docs = [document | {"_rev": revision(1, "a")} for document in docs]
    answer = db.send("POST", "/db/_bulk_docs", {"docs": [*docs, last], "new_edits": new_edits})
    assert answer.status == 400, answer
    assert db.ok("GET", "/db")["doc_count"] == 0


def test_each_document_of_a_batch_that_the_user_may_not_edit_is_refused_alone(new_server):
    server = new_server(extra=("--admin-password", "secret")).start()
    with Couch(server.http_port) as nobody, Couch(server.http_port, ("admin", "secret")) as admin:
        admin.ok("PUT", "/db")
        everybody = {"members": {"names": [], "roles": []}, "admins": {"names": [], "roles": []}}
        admin.ok("PUT", "/db/_security", everybody)
        answer = nobody.send("POST", "/db/_bulk_docs", {"docs": [{"_id": "a"}, {"_id": "_design/x"}, {"_id": "b"}]})
        assert answer.status == 201
        a, design, b = answer.json
        assert (a["id"], a["ok"], b["id"], b["ok"]) == ("a", True, "b", True)
        reason = "You are not a db or server admin."
        assert design == {"id": "_design/x", "error": "unauthorized", "reason": reason}
        assert [row["id"] for row in admin.ok("GET", "/db/_all_docs")["rows"]] == ["a", "b"]


def test_a_batch_needs_the_media_type_of_json(db):
    assert db.send("POST", "/db/_bulk_docs", {"docs": []}, Content_Type="").told() == (
        415,
        "bad_content_type",
        "Content-Type must be application/json",
    )
    assert db.get("/db/_bulk_docs").told() == (405, "method_not_allowed", "Only POST allowed")


def test_missing_revisions_are_named(db):
    rev = db.put("db", {"_id": "a"})
    asked = {"a": [rev, revision(3, "c")], "b": [revision(1, "a")], "c": []}
    assert db.ok("POST", "/db/_revs_diff", asked | {"a": [rev]}) == {"b": {"missing": [revision(1, "a")]}}
    assert db.ok("POST", "/db/_revs_diff", asked) == {
        "a": {"missing": [revision(3, "c")], "possible_ancestors": [rev]},
        "b": {"missing": [revision(1, "a")]},
    }
    assert db.ok("POST", "/db/_missing_revs", asked)["missing_revs"] == {
        "a": [revision(3, "c")],
        "b": [revision(1, "a")],
    }
    assert db.send("POST", "/db/_revs_diff", {"a": ["x"]}).told() == (400, "bad_request", "Invalid rev format")
    assert db.send("POST", "/db/_revs_diff", []).status == 400


def test_many_documents_are_read_at_once_in_the_order_asked_for(db):
    first = db.put("db", {"_id": "a", "x": 1})
    second = db.put("db", {"_id": "a", "x": 2, "_rev": first})
    asked = [{"id": "b"}, {"id": "a"}, {"id": "a", "rev": revision(1, "0")}, {"id": "a", "rev": first}]
    results = db.ok("POST", "/db/_bulk_get?revs=true&latest=true", {"docs": asked})["results"]
    assert [result["id"] for result in results] == ["b", "a", "a", "a"]
    missing = results[0]["docs"][0]["error"]
    assert (missing["id"], missing["error"], missing["reason"]) == ("b", "not_found", "missing")
    read = results[1]["docs"][0]["ok"]
    assert (read["x"], read["_revisions"]["start"]) == (2, 2)
    assert results[2]["docs"][0]["error"]["rev"] == revision(1, "0")
    assert results[3]["docs"][0]["ok"]["_rev"] == second, "latest: the leaf that follows"
    assert db.send("POST", "/db/_bulk_get", {}).told() == (400, "bad_request", "Missing JSON list of 'docs'.")


def test_all_documents_are_listed_in_ranges(db):
    revs = {name: db.put("db", {"_id": name, "n": index}) for index, name in enumerate("abcde")}

    def ids(parameters):
        return [row["id"] for row in db.ok("GET", f"/db/_all_docs?{parameters}")["rows"]]

    listed = db.ok("GET", "/db/_all_docs")
    assert (listed["total_rows"], listed["offset"]) == (5, 0)
    assert listed["rows"][0] == {"id": "a", "key": "a", "value": {"rev": revs["a"]}}
    assert ids('startkey="b"&endkey="d"') == ["b", "c", "d"]
    assert ids('start_key="b"&end_key="d"&inclusive_end=false') == ["b", "c"]
    assert ids('startkey="d"&endkey="b"&descending=true') == ["d", "c", "b"]
    assert ids("descending=true&limit=2&skip=1") == ["d", "c"]
    assert ids("limit=0") == []
    assert ids('key="c"') == ["c"]
    assert ids('key="none"') == []
    row = db.ok("GET", '/db/_all_docs?key="c"&include_docs=true')["rows"][0]
    assert row["doc"] == {"_id": "c", "_rev": revs["c"], "n": 2}
    assert db.ok("GET", "/db/_all_docs?limit=1&update_seq=true")["update_seq"].startswith("5-")
    assert db.get("/db/_all_docs?limit=x").told()[:2] == (400, "query_parse_error")
    assert db.get("/db/_all_docs?startkey=x").told() == (400, "bad_request", "invalid UTF-8 JSON")


def test_documents_are_listed_by_their_keys(db):
    rev = db.put("db", {"_id": "a"})
    gone = db.ok("DELETE", f"/db/b?rev={db.put('db', {'_id': 'b'})}")["rev"]
    rows = db.ok("POST", "/db/_all_docs?include_docs=true", {"keys": ["none", "b", "a", "a"]})["rows"]
    assert rows[0] == {"key": "none", "error": "not_found"}
    assert rows[1] == {"id": "b", "key": "b", "value": {"rev": gone, "deleted": True}, "doc": None}
    assert rows[2]["value"] == {"rev": rev}
    assert rows[3] == rows[2]
    by_url = db.ok("GET", '/db/_all_docs?keys=["a"]')["rows"]
    assert by_url == [{"id": "a", "key": "a", "value": {"rev": rev}}]
    assert db.send("POST", "/db/_all_docs", {"keys": 7}).told() == (
        400,
        "bad_request",
        "`keys` member must be an array.",
    )
    both = db.ok("POST", "/db/_all_docs/queries", {"queries": [{"limit": 1}, {"keys": ["none"]}]})["results"]
    assert [len(result["rows"]) for result in both] == [1, 1]


def test_design_documents_are_listed_apart(db):
    db.ok("PUT", "/db/_design/x", {})
    db.put("db", {"_id": "a"})
    assert [row["id"] for row in db.ok("GET", "/db/_design_docs")["rows"]] == ["_design/x"]
