"""Databases: created, described, deleted."""

import json
import time

import pytest

from harness.couch import Couch

pytestmark = pytest.mark.sheaf_only

ABSENT = (404, "not_found", "Database does not exist.")


def test_a_database_is_made_once_and_described(couch):
    answer = couch.send("PUT", "/db")
    assert (answer.status, answer.json) == (201, {"ok": True})
    assert answer.headers["Location"].endswith("/db")
    assert couch.send("PUT", "/db").told() == (
        412,
        "file_exists",
        "The database could not be created, the file already exists.",
    )
    couch.put("db", {"_id": "a"})
    rev = couch.put("db", {"_id": "b"})
    couch.ok("DELETE", f"/db/b?rev={rev}")
    couch.ok("PUT", "/db/_local/x", {})
    info = couch.ok("GET", "/db")
    assert info["db_name"] == "db"
    assert (info["doc_count"], info["doc_del_count"]) == (1, 1)
    assert info["update_seq"].startswith("3-")
    assert info["instance_start_time"] == "0"
    assert info["compact_running"] is False
    assert set(info["sizes"]) == {"file", "external", "active"}
    assert set(info["cluster"]) == {"q", "n", "w", "r"}
    assert {"purge_seq", "props", "disk_format_version"} <= set(info)
    assert couch.send("HEAD", "/db").status == 200
    assert couch.send("HEAD", "/none").status == 404
    assert couch.ok("GET", "/_all_dbs") == ["db"]


def test_a_database_that_is_removed_is_gone_and_may_be_made_again_empty(db):
    db.put("db", {"_id": "a"})
    first = db.ok("GET", "/db")["update_seq"]
    assert db.ok("DELETE", "/db") == {"ok": True}
    assert db.get("/db").told() == ABSENT
    assert db.get("/db/a").told() == ABSENT
    assert db.send("DELETE", "/db").told() == ABSENT
    assert db.send("PUT", "/db/a", {}).told() == ABSENT
    db.ok("PUT", "/db")
    assert db.get("/db/a").status == 404
    db.put("db", {"_id": "a"})
    assert db.ok("GET", "/db")["update_seq"] != first, "a feed of the other database does not fit this one"


@pytest.mark.parametrize("name", ["Db", "1db", "_db", "d%20b", "d.b", "%C3%A4"])
def test_names_are_those_that_couchdb_takes(couch, name):
    status, error, reason = couch.send("PUT", f"/{name}").told()
    assert (status, error) == (400, "illegal_database_name")
    assert reason.endswith(
        "Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. "
        "Must begin with a letter."
    )


def test_a_name_may_have_slashes(couch):
    couch.ok("PUT", "/a%2Fb%2B1")
    couch.ok("PUT", "/a%2Fb%2B1/doc", {"x": 1})
    assert couch.ok("GET", "/a%2Fb%2B1/doc")["x"] == 1
    assert couch.ok("GET", "/_all_dbs") == ["a/b+1"]


def test_databases_are_listed_in_order_and_in_parts(couch):
    for name in ["c", "a", "d", "b"]:
        couch.ok("PUT", f"/{name}")
    assert couch.ok("GET", "/_all_dbs") == ["a", "b", "c", "d"]
    assert couch.ok("GET", "/_all_dbs?limit=2&skip=1") == ["b", "c"]
    assert couch.ok("GET", '/_all_dbs?startkey="b"&endkey="c"') == ["b", "c"]
    assert couch.ok("GET", "/_all_dbs?descending=true&limit=1") == ["d"]
    listed = couch.ok("POST", "/_dbs_info", {"keys": ["a", "none"]})
    assert [row["key"] for row in listed] == ["a", "none"]
    assert listed[0]["info"]["db_name"] == "a"
    assert listed[1] == {"key": "none", "error": "not_found"}


@pytest.mark.oracle
def test_acknowledged_changes_survive_a_kill(new_server):
    server = new_server().start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/db")
        couch.ok("PUT", "/gone")
        rev = couch.put("db", {"_id": "a", "x": 1})
        couch.ok("PUT", "/db/_local/check", {"last_seq": 7})
        couch.ok("PUT", "/db/_security", {"members": {"names": ["anna"]}})
        couch.ok("DELETE", "/gone")
        before = couch.ok("GET", "/db/_changes")
    server.kill()
    server.start()
    with Couch(server.http_port) as couch:
        assert couch.ok("GET", "/_all_dbs") == ["db"]
        assert couch.ok("GET", "/db/a") == {"_id": "a", "_rev": rev, "x": 1}
        assert couch.ok("GET", "/db/_local/check")["last_seq"] == 7
        assert couch.ok("GET", "/db/_security")["members"]["names"] == ["anna"]
        assert couch.ok("GET", "/db/_changes") == before


def test_maintenance_is_answered_as_clients_expect(db):
    answer = db.send("POST", "/db/_compact", {})
    assert (answer.status, answer.json) == (202, {"ok": True})
    assert db.send("POST", "/db/_compact", b"", Content_Type="").told() == (
        415,
        "bad_content_type",
        "Content-Type must be application/json",
    )
    answer = db.send("POST", "/db/_ensure_full_commit", {})
    assert (answer.status, answer.json) == (201, {"ok": True, "instance_start_time": "0"})
    assert db.send("POST", "/db/_view_cleanup", {}).status == 202
    assert db.ok("GET", "/_active_tasks") == []
    assert db.get("/db/_compact").told() == (405, "method_not_allowed", "Only POST allowed")


def test_the_revisions_limit_is_a_number_and_is_kept_to(db):
    assert db.get("/db/_revs_limit").json == 1000
    assert db.ok("PUT", "/db/_revs_limit", 2) == {"ok": True}
    assert db.get("/db/_revs_limit").json == 2
    rev = None
    for number in range(5):
        rev = db.put("db", {"_id": "a", "n": number} | ({"_rev": rev} if rev else {}))
    assert len(db.ok("GET", "/db/a?revs=true")["_revisions"]["ids"]) == 2
    assert db.send("PUT", "/db/_revs_limit", 0).status == 400
    assert db.send("PUT", "/db/_revs_limit", "x").status == 400


def test_security_limits_readers_and_writers(new_server):
    server = new_server(extra=("--admin-password", "secret")).start()
    with Couch(server.http_port) as nobody, Couch(server.http_port, ("admin", "secret")) as admin:
        assert nobody.send("PUT", "/db").told() == (401, "unauthorized", "You are not a server admin.")
        admin.ok("PUT", "/db")
        refused = (401, "unauthorized", "You are not authorized to access this db.")
        assert nobody.get("/db").told() == refused
        assert nobody.send("PUT", "/db/a", {}).told() == refused
        assert nobody.get("/db/_changes").told() == refused
        assert admin.ok("GET", "/db/_security") == {
            "members": {"roles": ["_admin"]},
            "admins": {"roles": ["_admin"]},
        }
        everybody = {"members": {"names": [], "roles": []}, "admins": {"names": [], "roles": []}}
        assert nobody.send("PUT", "/db/_security", everybody).status == 401
        admin.ok("PUT", "/db/_security", everybody)
        nobody.put("db", {"_id": "a"})
        assert nobody.ok("GET", "/db")["doc_count"] == 1
        assert nobody.send("PUT", "/db/_security", {}).told()[:2] == (401, "unauthorized")
        assert nobody.send("PUT", "/db/_design/x", {}).told()[:2] == (401, "unauthorized")
        assert nobody.send("DELETE", "/db").told() == (401, "unauthorized", "You are not a server admin.")
        twice = b'{"members":{"names":["anna"]},"members":{}}'
        for wrong in ({"admins": {"names": 7}}, {"admins": []}, {"members": []}, [], twice):
            assert admin.send("PUT", "/db/_security", wrong).status == 400, wrong
        assert admin.send("PUT", "/db/_security", []).status == 400


def test_the_timeout_of_a_feed_of_databases_begins_anew_with_each_change(couch, server):
    couch.ok("PUT", "/db")
    feed = couch.begin("GET", "/_db_updates?feed=continuous&timeout=1000")
    until = time.monotonic() + 1.5
    with Couch(server.http_port) as other:
        while time.monotonic() < until:
            other.ok("POST", "/db", {})
        other.ok("PUT", "/last")
    assert any(json.loads(line).get("db_name") == "last" for line in feed), "writes went on for longer than the timeout"


def test_db_updates_follows_all_databases(couch, server):
    assert couch.ok("GET", "/_db_updates")["results"] == []
    couch.ok("PUT", "/a")
    couch.put("a", {"_id": "x"})
    found = couch.ok("GET", "/_db_updates")
    assert [(row["db_name"], row["type"]) for row in found["results"]] == [("a", "created"), ("a", "updated")]
    assert couch.ok("GET", f"/_db_updates?since={found['last_seq']}")["results"] == []
    feed = couch.begin("GET", f"/_db_updates?feed=continuous&heartbeat=50&since={found['last_seq']}")
    with Couch(server.http_port) as other:
        assert feed.readline() == b"\n", "a heartbeat: it has begun"
        other.ok("DELETE", "/a")
    while (line := feed.readline()) == b"\n":
        pass
    row = json.loads(line)
    assert (row["db_name"], row["type"]) == ("a", "deleted")
