"""The feed of changes, in all its forms: each change once, in order, none before it is durable."""

import json
import threading
import time

import pytest

from harness.couch import Couch, revision

pytestmark = pytest.mark.sheaf_only


def _ids(answer):
    return [row["id"] for row in answer["results"]]


@pytest.fixture
def second(server):
    """Another connection to the same server."""
    with Couch(server.http_port) as client:
        yield client


def test_each_document_is_in_the_feed_once_at_its_last_change(db):
    rev = db.put("db", {"_id": "a"})
    other = db.put("db", {"_id": "b"})
    rev = db.put("db", {"_id": "a", "_rev": rev})
    gone = db.ok("DELETE", f"/db/b?rev={other}")["rev"]
    feed = db.ok("GET", "/db/_changes")
    assert [(row["id"], row["changes"], row.get("deleted")) for row in feed["results"]] == [
        ("a", [{"rev": rev}], None),
        ("b", [{"rev": gone}], True),
    ]
    assert feed["last_seq"] == feed["results"][-1]["seq"] == db.ok("GET", "/db")["update_seq"]
    assert feed["pending"] == 0


def test_a_reader_continues_from_its_position(db):
    for name in "abcde":
        db.put("db", {"_id": name})
    first = db.ok("GET", "/db/_changes?limit=2")
    assert (_ids(first), first["pending"]) == (["a", "b"], 3)
    rest = db.ok("GET", f"/db/_changes?since={first['last_seq']}")
    assert _ids(rest) == ["c", "d", "e"]
    assert _ids(db.ok("GET", "/db/_changes?since=3")) == ["d", "e"], "a number will do"
    assert _ids(db.ok("GET", "/db/_changes", Last_Event_ID="")) == list("abcde")
    assert _ids(db.ok("GET", "/db/_changes?last-event-id=4")) == ["e"]
    assert _ids(db.ok("GET", "/db/_changes?since=now")) == []
    assert _ids(db.ok("GET", "/db/_changes?descending=true&limit=2")) == ["e", "d"]
    assert _ids(db.ok("GET", f"/db/_changes?since={json.dumps(first['last_seq'])}")) == ["c", "d", "e"]
    none = db.ok("GET", f"/db/_changes?since={rest['last_seq']}&limit=5")
    assert (none["results"], none["last_seq"]) == ([], rest["last_seq"])
    assert _ids(db.ok("GET", "/db/_changes?since=6")) == list("abcde"), "what was seen there is not there any more"
    assert db.get("/db/_changes?since=x").status == 400
    assert db.get("/db/_changes?limit=x").told()[:2] == (400, "query_parse_error")
    assert db.get("/db/_changes?feed=x").status == 400


def test_pending_counts_rows_of_the_feed(db):
    db.put("db", {"_id": "b"})
    rev = None
    for _ in range(6):
        rev = db.put("db", {"_id": "a"} | ({"_rev": rev} if rev else {}))
    db.put("db", {"_id": "c"})
    assert [db.ok("GET", f"/db/_changes?limit={limit}")["pending"] for limit in (1, 2, 3, 4)] == [2, 1, 0, 0]
    backwards = db.ok("GET", "/db/_changes?descending=true&limit=1")
    assert (_ids(backwards), backwards["pending"]) == (["c"], 2)


def test_a_feed_of_another_database_begins_anew(db):
    db.put("db", {"_id": "a"})
    since = db.ok("GET", "/db")["update_seq"]
    db.ok("DELETE", "/db")
    db.ok("PUT", "/db")
    db.put("db", {"_id": "b"})
    assert _ids(db.ok("GET", f"/db/_changes?since={since}")) == ["b"], "nothing is missed"


def test_all_leaves_can_be_listed(db):
    for digit in "ab":
        document = {"_id": "a", "_rev": revision(1, digit), "x": digit}
        db.ok("POST", "/db/_bulk_docs", {"docs": [document], "new_edits": False})
    main = db.ok("GET", "/db/_changes")["results"][0]["changes"]
    assert main == [{"rev": revision(1, "b")}]
    leaves = db.ok("GET", "/db/_changes?style=all_docs")["results"][0]["changes"]
    assert leaves == [{"rev": revision(1, "b")}, {"rev": revision(1, "a")}]
    row = db.ok("GET", "/db/_changes?include_docs=true&conflicts=true")["results"][0]
    assert row["doc"] == {"_id": "a", "_rev": revision(1, "b"), "x": "b", "_conflicts": [revision(1, "a")]}


def test_a_feed_can_be_of_some_documents_only(db):
    for name in "abcd":
        db.put("db", {"_id": name, "even": name in "bd"})
    db.ok("PUT", "/db/_design/x", {})
    some = db.ok("POST", "/db/_changes?filter=_doc_ids", {"doc_ids": ["d", "a", "none"]})
    assert _ids(some) == ["a", "d"]
    assert some["last_seq"] == db.ok("GET", "/db")["update_seq"]
    assert _ids(db.ok("GET", '/db/_changes?filter=_doc_ids&doc_ids=["b"]')) == ["b"]
    selected = db.ok("POST", "/db/_changes?filter=_selector", {"selector": {"even": True}})
    assert _ids(selected) == ["b", "d"]
    assert _ids(db.ok("GET", "/db/_changes?filter=_design")) == ["_design/x"]
    assert db.get("/db/_changes?filter=none/such").status == 404
    assert db.send("POST", "/db/_changes?filter=_doc_ids", {"doc_ids": 7}).status == 400
    assert db.send("POST", "/db/_changes?filter=_selector", {}).status == 400


def test_longpoll_answers_at_once_or_with_the_first_change(db, second):
    db.put("db", {"_id": "a"})
    feed = db.ok("GET", "/db/_changes?feed=longpoll")
    assert _ids(feed) == ["a"]
    path = f"/db/_changes?feed=longpoll&since={feed['last_seq']}"
    waiting = db.begin("GET", path)
    assert waiting.status == 200, "the head comes before any change, or browsers give up"
    second.put("db", {"_id": "b"})
    assert _ids(json.loads(waiting.read())) == ["b"]


def test_longpoll_ends_with_its_timeout_and_tells_its_position(db):
    db.put("db", {"_id": "a"})
    since = db.ok("GET", "/db")["update_seq"]
    feed = db.ok("GET", f"/db/_changes?feed=longpoll&since={since}&timeout=100")
    assert (feed["results"], feed["last_seq"]) == ([], since)


def test_longpoll_skips_filtered_changes_and_keeps_the_connection_alive(db, second):
    waiting = db.begin("POST", "/db/_changes?feed=longpoll&filter=_doc_ids&heartbeat=50", {"doc_ids": ["z"]})
    for number in range(20):
        second.put("db", {"_id": f"a{number}"})
    assert waiting.readline().startswith(b'{"results":[')
    assert waiting.readline() == b"\n", "a heartbeat"
    second.put("db", {"_id": "z"})
    rest = b'{"results":[' + waiting.read().lstrip()
    assert _ids(json.loads(rest)) == ["z"]


def test_a_continuous_feed_has_each_change_once_and_heartbeats(db, second):
    for name in "ab":
        db.put("db", {"_id": name})
    feed = db.begin("GET", "/db/_changes?feed=continuous&heartbeat=50")

    def next_row():
        while (line := feed.readline()) == b"\n":
            pass
        return json.loads(line)

    assert [next_row()["id"] for _ in range(2)] == ["a", "b"]
    assert feed.readline() == b"\n", "a heartbeat"
    for name in "cd":
        second.put("db", {"_id": name})
    assert [next_row()["id"] for _ in range(2)] == ["c", "d"]
    second.ok("DELETE", "/db")
    last = next_row()
    assert "last_seq" in last, "a feed ends with its database"
    assert feed.readline() == b""


def test_a_continuous_feed_ends_with_its_timeout_or_its_limit(db):
    db.put("db", {"_id": "a"})
    lines = db.get("/db/_changes?feed=continuous&timeout=100").body.splitlines()
    assert json.loads(lines[0])["id"] == "a"
    assert json.loads(lines[-1]) == {"last_seq": json.loads(lines[0])["seq"], "pending": 0}
    db.put("db", {"_id": "b"})
    lines = db.get("/db/_changes?feed=continuous&limit=1").body.splitlines()
    assert json.loads(lines[0])["id"] == "a"
    assert json.loads(lines[-1])["pending"] == 1


@pytest.mark.parametrize("form", ["continuous", "longpoll"])
def test_the_timeout_of_a_feed_begins_anew_with_each_change(db, second, form):
    """Writes go on for longer than the timeout; the filter leaves out all but the last."""
    path = f"/db/_changes?feed={form}&timeout=1000&filter=_doc_ids"
    feed = db.begin("POST", path, {"doc_ids": ["last"]})
    until, number = time.monotonic() + 1.5, 0
    while time.monotonic() < until:
        second.put("db", {"_id": f"a{number}"})
        number += 1
    second.put("db", {"_id": "last"})
    first, *_ = (line for line in feed if b"seq" in line)
    assert json.loads(first.rstrip(b",\n"))["id"] == "last"


def test_browsers_follow_events(db, second):
    db.put("db", {"_id": "a"})
    feed = db.begin("GET", "/db/_changes?feed=eventsource&heartbeat=50")
    assert feed.headers["Content-Type"] == "text/event-stream"
    data = feed.readline()
    assert data.startswith(b"data: ")
    row = json.loads(data[len(b"data: ") :])
    assert row["id"] == "a"
    assert feed.readline() == f"id: {row['seq']}\n".encode()
    assert feed.readline() == b"\n"
    assert feed.readline() == b"event: heartbeat\n"
    second.ok("DELETE", "/db")


def test_a_feed_under_load_has_every_document_and_none_twice(db, server):
    """Writers on several connections, a reader that follows: no change is missing or repeated."""
    writers, each = 4, 200
    feed = db.begin("GET", "/db/_changes?feed=continuous&heartbeat=1000")

    def write(writer):
        with Couch(server.http_port) as couch:
            for number in range(each):
                couch.put("db", {"_id": f"{writer}-{number}"})

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    seen, seqs = [], []
    while len(seen) < writers * each:
        line = feed.readline()
        if line != b"\n":
            row = json.loads(line)
            seen.append(row["id"])
            seqs.append(int(row["seq"].partition("-")[0]))
    for thread in threads:
        thread.join()
    assert len(set(seen)) == writers * each
    assert seqs == sorted(seqs)


def test_feeds_end_when_the_server_stops(db, server):
    feed = db.begin("GET", "/db/_changes?feed=continuous&heartbeat=1000")
    server.stop()
    assert b"last_seq" in feed.read()
