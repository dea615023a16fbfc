"""Queries by selectors, with and without indexes."""

import contextlib
import http.client

import pytest

from harness.couch import Couch

pytestmark = pytest.mark.sheaf_only


@pytest.fixture
def people(db):
    """A database with a hundred people."""
    docs = [{"_id": f"p{n:03}", "age": n % 50, "name": f"name {n}", "tags": ["even"] if n % 2 == 0 else []} for n in range(100)]
    db.ok("POST", "/db/_bulk_docs", {"docs": docs})
    return db


def _find(db, **query):
    return db.ok("POST", "/db/_find", query)


def test_documents_are_found_without_an_index(people):
    found = _find(people, selector={"age": 7})
    assert [doc["_id"] for doc in found["docs"]] == ["p007", "p057"]
    assert "warning" in found
    assert [doc["_id"] for doc in _find(people, selector={"_id": {"$gte": "p098"}})["docs"]] == ["p098", "p099"]
    assert _find(people, selector={"age": {"$gt": 100}})["docs"] == []
    some = _find(people, selector={"tags": {"$elemMatch": {"$eq": "even"}}}, fields=["name"], limit=2, skip=1)
    assert some["docs"] == [{"name": "name 2"}, {"name": "name 4"}]


def test_documents_are_found_by_an_index_in_its_order_page_by_page(people):
    made = people.ok("POST", "/db/_index", {"index": {"fields": ["age"]}, "ddoc": "ages", "name": "by-age"})
    assert made == {"result": "created", "id": "_design/ages", "name": "by-age"}
    again = people.ok("POST", "/db/_index", {"index": {"fields": ["age"]}, "ddoc": "ages", "name": "by-age"})
    assert again["result"] == "exists"
    query = {"selector": {"age": {"$gte": 45}}, "sort": [{"age": "desc"}], "fields": ["age"], "limit": 4}
    first = _find(people, **query)
    assert [doc["age"] for doc in first["docs"]] == [49, 49, 48, 48]
    second = _find(people, **query, bookmark=first["bookmark"])
    assert [doc["age"] for doc in second["docs"]] == [47, 47, 46, 46]
    third = _find(people, **query, bookmark=second["bookmark"])
    assert [doc["age"] for doc in third["docs"]] == [45, 45]
    explained = people.ok("POST", "/db/_explain", query)
    assert explained["index"]["name"] == "by-age"
    rev = people.ok("GET", "/db/p049")["_rev"]
    people.ok("DELETE", f"/db/p049?rev={rev}")
    assert len(_find(people, selector={"age": 49})["docs"]) == 1, "an index follows its database"


def test_indexes_are_listed_and_removed(people):
    listed = people.ok("GET", "/db/_index")
    assert listed["total_rows"] == 1
    assert listed["indexes"][0]["name"] == "_all_docs"
    for name in ["one", "two"]:
        people.ok("POST", "/db/_index", {"index": {"fields": [name]}, "ddoc": "d", "name": name})
    assert [index["name"] for index in people.ok("GET", "/db/_index")["indexes"]] == ["_all_docs", "one", "two"]
    assert people.ok("DELETE", "/db/_index/_design/d/json/one") == {"ok": True}
    assert people.ok("DELETE", "/db/_index/d/json/two") == {"ok": True}
    assert people.ok("GET", "/db/_index")["total_rows"] == 1
    assert people.get("/db/_design/d").status == 404
    assert people.send("DELETE", "/db/_index/d/json/two").status == 404


def test_an_index_survives_a_kill_and_is_up_to_date_after_it(new_server):
    server = new_server().start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/db")
        couch.ok("POST", "/db/_index", {"index": {"fields": ["n"]}})
        couch.ok("POST", "/db/_bulk_docs", {"docs": [{"_id": f"{n:04}", "n": n} for n in range(3000)]})
        assert len(_find(couch, selector={"n": {"$lt": 10}}, limit=100)["docs"]) == 10
        couch.ok("PUT", "/db/new", {"n": 5})
    server.kill()
    server.start()
    with Couch(server.http_port) as couch:
        assert len(_find(couch, selector={"n": {"$lt": 10}}, limit=100)["docs"]) == 11


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ({}, 400, "missing_required_key"),
        ({"selector": 7}, 400, "invalid_selector_json"),
        ({"selector": {"$x": 1}}, 400, "invalid_operator"),
        ({"selector": {}, "limit": -1}, 400, "invalid_non_neg_integer"),
        ({"selector": {}, "sort": [{"name": "asc"}]}, 400, "no_usable_index"),
        ({"selector": {}, "bookmark": "???"}, 400, "invalid_bookmark"),
        ({"selector": {"a": {"$in": 7}}}, 400, "bad_arg"),
        ({"selector": {"a": {"$regex": 7}}}, 400, "invalid_operator"),
        ({"selector": {"a": {"$beginsWith": None}}}, 400, "invalid_operator"),
        ({"selector": {}, "r": "1"}, 400, "invalid_pos_integer"),
        ({"selector": {}, "r": 0}, 400, "invalid_pos_integer"),
        ({"selector": {}, "use_index": "a/b/c"}, 400, "invalid_index_name"),
        ({"selector": {}, "partition": "x"}, 400, "query_parse_error"),
        ({"selector": {"age": 1}, "use_index": "x", "allow_fallback": False}, 400, "invalid_index"),
    ],
)
def test_invalid_queries_are_refused(people, query, status, error):
    assert people.send("POST", "/db/_find", query).told()[:2] == (status, error)


def test_invalid_numbers_in_queries_are_refused(people):
    told = people.send("POST", "/db/_find", b'{"selector":{"age":{"$lt":1e310}}}').told()
    assert told == (400, "bad_request", "invalid UTF-8 JSON")
    for w in [b'"1"', b"0", b"null"]:
        told = people.send("POST", "/db/_index", b'{"index":{"fields":["age"]},"w":%s}' % w).told()
        assert told[:2] == (400, "invalid_pos_integer")


@pytest.mark.parametrize("with_index", [False, True])
def test_empty_lists_have_the_meaning_of_couchdb(people, with_index):
    if with_index:
        people.ok("POST", "/db/_index", {"index": {"fields": ["age"]}})
    for selector, count in [
        ({}, 100),
        ({"$or": []}, 0),
        ({"$and": []}, 0),
        ({"$nor": []}, 0),
        ({"age": 22, "$or": []}, 2),
        ({"age": 22, "$and": []}, 2),
        ({"age": 22, "$nor": []}, 2),
        ({"age": 22, "tags": {"$in": []}}, 0),
        ({"age": 22, "tags": {"$all": []}}, 0),
        ({"age": 22, "$and": [{"tags": {"$all": []}}]}, 0),
        ({"age": 22, "tags": {"$nin": []}}, 2),
        ({"$or": [], "age": {"$in": []}}, 0),
        ({"$and": [{}]}, 0),
        ({"age": {"$gte": 48}, "tags": {"$elemMatch": {}}}, 0),
    ]:
        assert len(_find(people, selector=selector, limit=200)["docs"]) == count, selector
    rows = people.ok("POST", "/db/_changes?filter=_selector", {"selector": {"$or": []}})["results"]
    assert len(rows) == 100 + with_index, "only a query finds nothing with an empty list alone"


def test_a_query_is_explained_as_couchdb_does(people):
    for name in ["age", "name"]:
        people.ok("POST", "/db/_index", {"index": {"fields": [name]}, "ddoc": name, "name": name})
    told = people.ok("POST", "/db/_explain", {"selector": {"age": {"$gt": 0}}, "fields": ["name"]})
    assert told["selector"] == {"age": {"$gt": 0}}
    assert (told["opts"]["r"], told["opts"]["allow_fallback"], told["covering"]) == (1, True, False)
    arguments = told["mrargs"]
    assert (arguments["start_key"], arguments["end_key"]) == ([0], ["<MAX>"])
    assert (arguments["include_docs"], arguments["reduce"], arguments["update"]) == (True, False, True)
    [name, all_docs] = told["index_candidates"]
    assert (name["index"]["name"], all_docs["index"]["name"]) == ("name", "_all_docs")
    reasons = [candidate["analysis"]["reasons"] for candidate in [name, all_docs]]
    assert reasons == [[{"name": "field_mismatch"}], [{"name": "unfavored_type"}]]
    hints = {"type": "json", "indexable_fields": ["age"], "unindexable_fields": []}
    assert told["selector_hints"] == [hints]
    unsorted = people.ok("POST", "/db/_explain", {"selector": {"age": 23}, "sort": ["company"]})
    assert unsorted["index"] is None


def test_an_index_of_an_old_design_document_is_partial(people):
    view = {"map": {"fields": {"age": "asc"}, "selector": {"age": {"$gte": 45}}}, "reduce": "_count"}
    view["options"] = {"def": {"fields": ["age"]}}
    people.ok("PUT", "/db/_design/old", {"language": "query", "views": {"old": view}})
    query = {"selector": {"age": {"$gte": 40}}, "limit": 200}
    assert people.ok("POST", "/db/_explain", query)["index"]["name"] == "_all_docs"
    told = people.ok("POST", "/db/_explain", {**query, "use_index": "old"})
    assert told["index"]["def"]["selector"] == {"age": {"$gte": 45}}
    assert len(_find(people, **query)["docs"]) == 20
    assert len(_find(people, **query, use_index="old")["docs"]) == 10


@pytest.mark.parametrize("damage", ["bytes are flipped", "the newest state", "the end is lost"])
def test_an_index_that_is_damaged_is_made_again_by_itself(new_server, damage):
    server = new_server().start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/db")
        couch.ok("POST", "/db/_bulk_docs", {"docs": [{"_id": f"{n:04}", "n": n, "text": "x" * 200} for n in range(2000)]})
        couch.ok("POST", "/db/_index", {"index": {"fields": ["n"]}})
        question = {"selector": {"n": {"$gte": 500}}, "sort": ["n"], "limit": 1000}
        found = couch.ok("POST", "/db/_find", question)["docs"]
        assert len(found) == 1000
        # A later state of the file refers to parts written by the earlier one.
        couch.put("db", {"_id": "late", "n": 1})
        assert couch.ok("POST", "/db/_find", question)["docs"] == found
    server.stop()
    [index] = server.directory.rglob("*.index")
    content = bytearray(index.read_bytes())
    if damage == "bytes are flipped":
        # Neither at the beginning nor at the newest state: the file is opened, and a reader finds the damage.
        for offset in range(len(content) // 4, len(content) // 2, 512):
            content[offset] ^= 0xFF
    elif damage == "the newest state":
        content[-1] ^= 0xFF
    else:
        del content[len(content) // 2 :]
    index.write_bytes(content)
    server.start()
    with Couch(server.http_port) as couch:
        # If the damage is met during the reply, the reply is broken off.
        with contextlib.suppress(http.client.IncompleteRead):
            assert couch.ok("POST", "/db/_find", question)["docs"] == found
    with Couch(server.http_port) as couch:
        for _ in range(3):
            assert couch.ok("POST", "/db/_find", question)["docs"] == found
    log = server.log()
    made_again = log.count("an index for queries is damaged: it is made again")
    goes_back = log.count("the newest part of an index for queries is damaged: it goes on from an earlier state")
    # A file without its end continues from an earlier state, which need not be damage.
    assert (made_again, goes_back) in {
        "bytes are flipped": [(1, 0)],
        "the newest state": [(0, 1)],
        "the end is lost": [(1, 0), (0, 1), (0, 0)],
    }[damage]
