"""couchdb3, a client of CouchDB for Python: its everyday calls."""

import couchdb3
import pytest
from couchdb3.exceptions import ConflictError, NotFoundError

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def couch(new_server):
    """A couchdb3 server object that is logged in."""
    server = new_server(extra=("--admin-password", "secret")).start()
    with couchdb3.Server(f"http://127.0.0.1:{server.http_port}", user="admin", password="secret") as client:
        yield client


@pytest.fixture
def db(couch):
    """An empty database."""
    return couch.create("things")


def test_databases_are_created_listed_and_deleted(couch):
    couch.create("things")
    assert "things" in couch
    assert couch.all_dbs() == ["things"]
    assert couch.get("things").info()["doc_count"] == 0
    assert couch.delete("things")
    assert "things" not in couch
    assert couch.up()


def test_documents_are_created_read_changed_and_deleted(db):
    _, ok, first = db.create({"_id": "rabbit", "happy": True})
    assert ok
    assert db["rabbit"]["happy"] is True
    _, _, second = db.save({"_id": "rabbit", "_rev": first, "happy": False})
    assert db.rev("rabbit") == second
    with pytest.raises(ConflictError):
        db.save({"_id": "rabbit", "_rev": first})
    db.copy("rabbit", "hare")
    assert db.get("hare")["happy"] is False
    assert db.delete("rabbit", second)
    assert "rabbit" not in db
    with pytest.raises(NotFoundError):
        db.get("rabbit", check=True)


def test_many_documents_are_written_and_listed(db):
    results = db.bulk_docs([{"_id": f"{n:03}", "n": n} for n in range(100)])
    assert all(result["ok"] for result in results)
    rows = db.all_docs(keys=["007", "042"], include_docs=True).rows
    assert [row["doc"]["n"] for row in rows] == [7, 42]
    found = db.bulk_get([{"id": "007"}])
    assert found


def test_attachments_are_written_read_and_deleted(db):
    _, _, rev = db.put_attachment("doc", "a.txt", content=b"hello", content_type="text/plain")
    assert db.get_attachment("doc", "a.txt").content == b"hello"
    assert db.delete_attachment("doc", "a.txt", rev)


def test_documents_are_found_by_selector_and_index(db):
    db.bulk_docs([{"n": n} for n in range(100)])
    db.save_index({"fields": ["n"]}, ddoc="d", name="by-n")
    found = db.find({"n": {"$gte": 95}}, sort=[{"n": "desc"}], fields=["n"])
    assert [doc["n"] for doc in found["docs"]] == [99, 98, 97, 96, 95]
    assert {index["name"] for index in db.indexes()["indexes"]} == {"_all_docs", "by-n"}


def test_a_feed_of_changes_ends_at_its_limit(db):
    db.bulk_docs([{"_id": name} for name in "abc"])
    feed = db.changes(limit=2)
    assert [row["id"] for row in feed["results"]] == ["a", "b"]


def test_security_is_set_and_read(db):
    db.update_security(admins={"names": ["eva"], "roles": []}, members={"names": ["anna"], "roles": []})
    assert db.security()["members"]["names"] == ["anna"]
