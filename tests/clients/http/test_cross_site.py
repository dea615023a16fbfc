"""Requests that a page of another origin can make a browser send: nothing changes unless CORS allows it."""

import pytest

from harness.couch import Couch

pytestmark = pytest.mark.sheaf_only

FOREIGN = {
    "another site": {"Origin": "http://evil.example"},
    "another port of this machine": {"Origin": "http://localhost:3000"},
    "a page without an origin": {"Origin": "null"},
    "told by the browser": {"Sec_Fetch_Site": "cross-site"},
    "another port, told by the browser": {"Sec_Fetch_Site": "same-site"},
}
CHANGES = [
    ("PUT", "/other", None),
    ("DELETE", "/db", None),
    ("POST", "/db", {"a": 1}),
    ("PUT", "/db/doc", {"a": 1}),
    ("POST", "/db/_bulk_docs", {"docs": [{"_id": "doc"}]}),
    ("COPY", "/db/doc", None),
    ("POST", "/_session", {"name": "a", "password": "b"}),
    ("DELETE", "/_session", None),
    ("POST", "/_backup", None),
    ("DELETE", "/_backup/0123456789abcdef0123456789abcdef", None),
    ("PUT", "/_node/_local/_config/cors/origins", "*"),
]


@pytest.mark.parametrize("page", FOREIGN.values(), ids=FOREIGN.keys())
def test_nothing_is_changed_for_a_page_of_another_origin(db, page):
    for method, path, body in CHANGES:
        status, error, reason = db.send(method, path, body, **page).told()
        assert (status, error) == (403, "forbidden") and "another origin" in reason, (method, path)
    assert db.ok("GET", "/_all_dbs", **page) == ["db"], "reading is no change, and the page cannot see the answer"
    assert db.ok("GET", "/db")["doc_count"] == 0


def test_pages_of_this_server_and_other_clients_may_change_things(db, server):
    for number, headers in enumerate(
        [
            {},
            {"Origin": f"http://127.0.0.1:{server.http_port}"},
            {"Sec_Fetch_Site": "same-origin"},
            {"Sec_Fetch_Site": "none"},
            {"Sec_Fetch_Site": "same-origin", "Origin": "https://behind-a-proxy.example"},
        ]
    ):
        assert db.ok("PUT", f"/db/{number}", {}, **headers)["ok"]
        # As curl sends by default.
        assert db.send("PUT", f"/db/curl-{number}", b"{}", Content_Type="application/x-www-form-urlencoded", **headers).status == 201


def test_a_page_that_cors_lets_in_may_change_things(db):
    page = {"Origin": "http://app.example", "Sec_Fetch_Site": "cross-site"}
    db.ok("PUT", "/_node/_local/_config/httpd/enable_cors", "true")
    db.ok("PUT", "/_node/_local/_config/cors/origins", "http://app.example")
    answer = db.send("PUT", "/db/doc", {}, **page)
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (201, "http://app.example")
    assert db.send("PUT", "/db/other", {}, Origin="http://other.example").status == 403


def test_a_request_without_a_preflight_begins_no_backup(couch):
    for content_type in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = couch.send("POST", "/_backup", Content_Type=content_type)
        assert answer.told() == (415, "bad_content_type", "Content-Type must be application/json"), content_type
    assert couch.send("POST", "/_backup").status == 201


def test_posts_of_documents_are_json(db):
    for path in ("/db", "/db/_bulk_docs", "/db/_find", "/db/_changes", "/db/_all_docs", "/db/_compact", "/db/_purge"):
        assert db.send("POST", path, b"{}", Content_Type="text/plain").status == 415, path


def test_slashes_in_a_row_are_one(db):
    assert db.ok("PUT", "//db//doc/", {"a": 1})["ok"]
    assert db.ok("GET", "/db/doc")["a"] == 1
    assert b"sheaf_clients" in db.get("//metrics").body
    assert db.send("POST", "//_backup", Origin="http://evil.example").status == 403
    assert db.send("POST", "//_backup").status == 201


def test_a_cookie_is_for_pages_of_this_server_and_ends_with_the_logout(new_server):
    server = new_server(extra=("--admin-user", "anna", "--admin-password", "secret")).start()
    with Couch(server.http_port) as couch:
        answers = [couch.send("POST", "/_session", {"name": "anna", "password": "secret"}) for _ in range(2)]
        cookies = [answer.headers["Set-Cookie"] for answer in answers]
        for cookie in cookies:
            assert {part.strip() for part in cookie.split(";")} >= {"SameSite=Strict", "HttpOnly", "Path=/"}
        first, second = ({"Cookie": cookie.split(";")[0]} for cookie in cookies)
        assert couch.ok("GET", "/_session", **first)["userCtx"]["name"] == "anna"
        gone = couch.send("DELETE", "/_session", **first)
        assert gone.status == 200 and gone.headers["Set-Cookie"].startswith("AuthSession=;")
        assert couch.ok("GET", "/_session", **first)["userCtx"]["name"] is None, "the cookie that was thrown away"
        assert couch.send("GET", "/_all_dbs", **first).status == 401
        assert couch.ok("GET", "/_session", **second)["userCtx"]["name"] == "anna", "another session goes on"
        form = couch.send(
            "POST", "/_session", b"name=anna&password=secret", Content_Type="application/x-www-form-urlencoded"
        )
        assert form.status == 200, "a form may log in"
