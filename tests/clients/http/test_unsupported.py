"""CouchDB features that Sheaf lacks are refused, and the alternative is named; nothing is stored that would
not be honoured.
"""

import pytest

pytestmark = pytest.mark.sheaf_only

USER = {"name": "bob", "password": "secret", "roles": [], "type": "user"}
VALIDATION = {"_id": "_design/v", "validate_doc_update": "function () { throw {forbidden: 'no'} }"}


def _refused(answer, says: str = "") -> None:
    status, error, reason = answer.told()
    assert (status, error) == (501, "not_implemented"), (status, error, reason)
    assert says in reason


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/db/_design/d/_view/v"),
        ("POST", "/db/_design/d/_view/v"),
        ("POST", "/db/_design/d/_view/v/queries"),
        ("GET", "/db/_design%2Fd/_view/v"),
        ("GET", "/db/_design/d/_list/l/v"),
        ("GET", "/db/_design/d/_show/s/doc"),
        ("POST", "/db/_design/d/_update/u"),
        ("PUT", "/db/_design/d/_update/u/doc"),
        ("GET", "/db/_design/d/_rewrite/x"),
        ("POST", "/db/_design/d/_queries"),
        ("GET", "/db/_design/d/_info"),
        ("POST", "/db/_temp_view"),
        ("GET", "/db/_partition/p/_all_docs"),
        ("POST", "/_replicate"),
        ("GET", "/_scheduler/jobs"),
        ("GET", "/_scheduler/docs"),
        ("GET", "/_utils"),
        ("GET", "/_node/_local/_stats"),
        ("PUT", "/new?partitioned=true"),
        ("GET", "/db/_changes?filter=_view&view=d/v"),
    ],
)
def test_unsupported_paths_name_an_alternative(db, method, path):
    _refused(db.send(method, path, {} if method in ("POST", "PUT") else None))


def test_the_console_is_told_without_an_error_that_there_is_no_fauxton(couch):
    reply = couch.send("GET", "/_utils/", None, Accept="application/vnd.sheaf.console+json")
    assert (reply.status, reply.json) == (200, {"fauxton": False})
    for accept in ("*/*", "text/html", "application/json"):
        _refused(couch.send("GET", "/_utils/", None, Accept=accept))


def test_a_multipart_body_is_refused_with_an_alternative(db):
    body = b'--x\r\nContent-Type: application/json\r\n\r\n{"_attachments": {"a": {"follows": true}}}\r\n--x--'
    _refused(db.send("PUT", "/db/doc", body, Content_Type='multipart/related; boundary="x"'), "base64")


def test_a_database_without_partitions_is_made(couch):
    assert couch.ok("PUT", "/new?partitioned=false&q=8&n=3")["ok"]


def test_no_password_is_stored(couch, server):
    couch.ok("PUT", "/_users")
    path = "/_users/org.couchdb.user:bob"
    couch.ok("PUT", "/db")
    couch.put("db", USER | {"_id": "bob"})
    with server.connect() as connection:
        answer = connection.call("DOC.PUT", "_users", "org.couchdb.user:bob", '{"password":"secret"}')
    assert answer.text.startswith("NOTIMPLEMENTED ")
    assert couch.get(path).status == 404
    for new_edits in (True, False):
        user = USER | {"_id": "org.couchdb.user:bob"} | ({} if new_edits else {"_rev": f"2-{'a' * 32}"})
        couch.ok("POST", "/_users/_bulk_docs", {"docs": [user], "new_edits": new_edits})
        shown = couch.get("/_users/_all_docs?include_docs=true&conflicts=true").body
        assert b"derived_key" in shown
        assert b"secret" not in shown


def test_replications_and_validations_are_not_stored(db):
    db.ok("PUT", "/_replicator")
    _refused(db.send("PUT", "/_replicator/job", {"source": "a", "target": "b"}), "PouchDB")
    _refused(db.send("PUT", "/db/_design/v", VALIDATION), "JavaScript")
    db.ok("PUT", "/db/plain", {"validate_doc_update": "a member like any other", "_id": "plain"})
    _refused(db.send("COPY", "/db/plain", Destination="_design/v"))
    assert db.get("/db/_design/v").status == 404


def test_a_batch_fails_only_for_unsupported_documents(db):
    replicated = [VALIDATION | {"_rev": f"1-{'a' * 32}"}, {"_id": "a", "_rev": f"1-{'b' * 32}"}]
    [row] = db.ok("POST", "/db/_bulk_docs", {"docs": replicated, "new_edits": False})
    # PouchDB goes on only if the name of the error says that a permission is lacking.
    assert (row["id"], row["error"], row["name"]) == ("_design/v", "forbidden", "forbidden")
    assert "JavaScript" in row["reason"]
    rows = db.ok("POST", "/db/_bulk_docs", {"docs": [VALIDATION, {"_id": "b"}]})
    assert rows[0]["error"] == "not_implemented" and rows[1]["ok"]
    assert [row["id"] for row in db.ok("GET", "/db/_all_docs")["rows"]] == ["a", "b"]


def test_design_documents_that_clients_replicate_are_kept(db):
    design = {"_id": "_design/d", "views": {"v": {"map": "function (doc) { emit(doc._id) }"}}, "filters": {"f": "function () {}"}}
    db.put("db", design)
    assert db.ok("GET", "/db/_design/d")["views"] == design["views"]
    _refused(db.send("GET", "/db/_design/d/_view/v"), "_find")
    _refused(db.send("GET", "/db/_changes?filter=d/f"), "_selector")
