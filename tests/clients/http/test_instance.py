"""The server as a whole: greeting, ids, settings, pages of other origins."""

import json
import re

import pytest

from harness.couch import Couch

pytestmark = pytest.mark.sheaf_only


def test_the_greeting_has_an_id_that_stays(new_server):
    server = new_server().start()
    with Couch(server.http_port) as couch:
        answer = couch.get("/")
    greeting = answer.json
    assert greeting["couchdb"] == "Welcome"
    assert re.fullmatch("[0-9a-f]{32}", greeting["uuid"])
    assert answer.headers["Server"].startswith("Sheaf/")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "must-revalidate"
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Couch-Request-ID"])
    server.stop()
    server.start()
    with Couch(server.http_port) as couch:
        assert couch.get("/").json["uuid"] == greeting["uuid"], "replication would begin anew"


def test_head_has_the_headers_of_get_and_no_body(couch):
    get, head = couch.get("/"), couch.send("HEAD", "/")
    assert head.status == 200
    assert head.body == b""
    assert head.headers["Content-Length"] == get.headers["Content-Length"] == str(len(get.body))


def test_clients_that_accept_html_get_json_as_plain_text(couch):
    assert couch.get("/_all_dbs", Accept="text/html").headers["Content-Type"] == "text/plain; charset=utf-8"
    assert couch.get("/_all_dbs", Accept="").headers["Content-Type"] == "application/json"


def test_up(couch):
    assert couch.get("/_up").json == {"status": "ok"}


def test_uuids_are_as_many_as_asked_for_and_all_different(couch):
    assert len(couch.ok("GET", "/_uuids")["uuids"]) == 1
    ids = couch.ok("GET", "/_uuids?count=1000")["uuids"]
    assert len(set(ids)) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", uuid) for uuid in ids)
    assert couch.get("/_uuids?count=1001").told() == (403, "forbidden", "count parameter too large")
    assert couch.get("/_uuids?count=x").told() == (
        400,
        "query_parse_error",
        'Invalid value for integer: "x"',
    )


def test_a_refused_method_is_answered_with_the_allowed_ones(couch):
    answer = couch.send("POST", "/_up")
    assert answer.told() == (405, "method_not_allowed", "Only GET,HEAD allowed")
    assert answer.headers["Allow"] == "GET,HEAD"


def test_settings_have_their_names_of_couchdb(couch, server):
    path = "/_node/_local/_config"
    assert couch.get(f"{path}/cors/origins").json == ""
    assert couch.ok("PUT", f"{path}/cors/origins", "http://a.example") == ""
    assert couch.ok("GET", f"{path}/cors")["origins"] == "http://a.example"
    assert couch.ok("GET", path)["cors"]["origins"] == "http://a.example"
    with server.connect() as connection:
        assert connection.call("CONFIG", "GET", "cors-origins") == [b"cors-origins", b"http://a.example"]
    assert couch.ok("DELETE", f"{path}/cors/origins") == "http://a.example"
    assert couch.get(f"{path}/cors/origins").json == ""
    assert couch.get(f"{path}/cors/none").told() == (404, "not_found", "unknown_config_value")
    refused = couch.send("PUT", f"{path}/cors/credentials", "maybe")
    assert refused.told() == (400, "bad_request", "must be yes or no")
    assert couch.send("PUT", f"{path}/cors/credentials", 7).status == 400


def test_settings_changed_over_http_are_kept(new_server):
    server = new_server().start()
    path = "/_node/_local/_config/cors"
    with Couch(server.http_port) as couch:
        couch.ok("PUT", f"{path}/origins", "https://a.example")
        couch.ok("PUT", f"{path}/methods", "GET, PUT")
        couch.ok("DELETE", f"{path}/methods")
    with server.connect() as connection:
        assert connection.call("CONFIG", "SET", "cors-headers", "accept") == b"OK"
    server.kill()
    server.start()
    with Couch(server.http_port) as couch:
        kept = couch.ok("GET", path)
    assert kept["origins"] == "https://a.example"
    assert kept["methods"] != "GET, PUT", "what was deleted is as it was before"
    assert kept["headers"] == "accept", "CONFIG SET stays as well"


def test_pages_of_other_origins_are_let_in_once_they_are_allowed(couch):
    origin = {"Origin": "http://page.example"}
    assert "Access-Control-Allow-Origin" not in couch.get("/", **origin).headers
    # The requests of `add-cors-to-couchdb`.
    for section, key, value in [
        ("httpd", "enable_cors", "true"),
        ("cors", "origins", "*"),
        ("cors", "credentials", "true"),
        ("cors", "methods", "GET, PUT, POST, HEAD, DELETE"),
        ("cors", "headers", "accept, authorization, content-type, origin, referer, x-csrf-token"),
    ]:
        couch.ok("PUT", f"/_node/_local/_config/{section}/{key}", value)
    answer = couch.get("/", **origin)
    assert answer.headers["Access-Control-Allow-Origin"] == "http://page.example"
    assert answer.headers["Access-Control-Allow-Credentials"] == "true"
    assert "etag" in answer.headers["Access-Control-Expose-Headers"]
    refused = couch.get("/nothing", **origin)
    assert refused.status == 404
    assert refused.headers["Access-Control-Allow-Origin"] == "http://page.example", "errors can be read as well"
    ask = {"Access_Control_Request_Method": "PUT", "Access_Control_Request_Headers": "content-type, x-csrf-token"}
    answer = couch.send("OPTIONS", "/db/doc", **origin, **ask)
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Methods"] == "GET, PUT, POST, HEAD, DELETE"
    assert answer.headers["Access-Control-Allow-Headers"] == "content-type, x-csrf-token"
    assert answer.headers["Access-Control-Max-Age"] == "600"


def test_metrics_and_probes_are_still_there(couch):
    metrics = couch.get("/metrics").body
    for name in (b"sheaf_log_records_total", b"sheaf_document_tree_writes_total", b"sheaf_document_tree_bytes_total"):
        assert b"\n%s " % name in metrics
    assert json.loads(couch.send("POST", "/_backup").body)["session"]
