"""Writers of documents that remember the replies, and the check of a server's data after it was killed.

Each writer has ids of its own and edits them one after the other, so each document has at most one unanswered
edit: its revision is the last acknowledged one or that of the unanswered edit.
"""

import http.client
import json
import random
import threading
from dataclasses import dataclass, field
from typing import Any

from harness import resp
from harness.couch import Couch
from harness.server import Server

IDS_PER_WRITER = 40
BULK_DOCUMENTS_MAX = 20


@dataclass
class Known:
    """The known state of one document."""

    rev: str | None = None
    step: int = 0
    deleted: bool = True
    # The step of an edit that was sent and not answered.
    unanswered: int | None = None
    acknowledged: list[str] = field(default_factory=list)


class DocumentWriter:
    """One client; edits its own documents until the server stops answering."""

    def __init__(self, number: int, seed: int):
        self.number = number
        self.known = {f"w{number}-{id_}": Known() for id_ in range(IDS_PER_WRITER)}
        self.local = Known()
        self.acknowledged = 0
        self._random = random.Random(f"{seed}-{number}")

    def run(self, server: Server, database: str) -> None:
        """Writes until the connection breaks."""
        try:
            with Couch(server.http_port) as couch, server.connect() as redis:
                while True:
                    self._write(couch, redis, database)
        except (OSError, http.client.HTTPException, resp.Closed):
            return

    def _write(self, couch: Couch, redis: resp.Connection, database: str) -> None:
        kind = self._random.random()
        if kind < 0.5:
            self._put(couch, database)
        elif kind < 0.6:
            self._delete(couch, database)
        elif kind < 0.8:
            self._bulk(couch, database)
        elif kind < 0.9:
            self._put_local(couch, database)
        else:
            self._put_with_key(redis, database)

    def _begin(self, id_: str) -> dict[str, Any]:
        known = self.known[id_]
        known.unanswered = known.step + 1
        body: dict[str, Any] = {"_id": id_, "step": known.unanswered, "filling": "x" * self._random.randrange(2000)}
        if known.rev is not None:
            body["_rev"] = known.rev
        return body

    def _end(self, id_: str, rev: str, deleted: bool = False) -> None:
        known = self.known[id_]
        assert known.unanswered is not None
        known.rev, known.step, known.deleted, known.unanswered = rev, known.unanswered, deleted, None
        known.acknowledged.append(rev)
        self.acknowledged += 1

    def _put(self, couch: Couch, database: str) -> None:
        id_ = self._random.choice(list(self.known))
        self._end(id_, couch.put(database, self._begin(id_)))

    def _delete(self, couch: Couch, database: str) -> None:
        there = [id_ for id_, known in self.known.items() if not known.deleted]
        if there:
            id_ = self._random.choice(there)
            rev = self._begin(id_)["_rev"]
            self._end(id_, couch.ok("DELETE", f"/{database}/{id_}?rev={rev}")["rev"], deleted=True)

    def _bulk(self, couch: Couch, database: str) -> None:
        ids = self._random.sample(list(self.known), self._random.randrange(1, BULK_DOCUMENTS_MAX))
        results = couch.ok("POST", f"/{database}/_bulk_docs", {"docs": [self._begin(id_) for id_ in ids]})
        assert [result["id"] for result in results] == ids
        for result in results:
            self._end(result["id"], result["rev"])

    def _put_local(self, couch: Couch, database: str) -> None:
        self.local.unanswered = self.local.step + 1
        body = {"step": self.local.unanswered} | ({} if self.local.rev is None else {"_rev": self.local.rev})
        answer = couch.ok("PUT", f"/{database}/_local/{self.number}", body)
        self.local.rev, self.local.step, self.local.unanswered = answer["rev"], self.local.unanswered, None
        self.acknowledged += 1

    def _put_with_key(self, redis: resp.Connection, database: str) -> None:
        """A document and a key in one transaction: the key holds the step of the document."""
        id_ = f"w{self.number}-0"
        body = self._begin(id_)
        redis.call("MULTI")
        redis.call("DOC.PUT", database, id_, json.dumps(body))
        redis.call("SET", id_, body["step"])
        rev, done = redis.call("EXEC")
        assert done == b"OK"
        self._end(id_, rev.decode())

    def check(self, server: Server, database: str) -> None:
        """Compares the expected state with that of the server, and continues from the state of the server."""
        with Couch(server.http_port) as couch, server.connect() as redis:
            for id_, known in self.known.items():
                self._check_document(couch, database, id_, known)
            answer = couch.get(f"/{database}/_local/{self.number}")
            step = answer.json["step"] if answer.status == 200 else 0
            assert step in {self.local.step, self.local.unanswered}, (self.number, step, self.local)
            self.local = Known(rev=answer.json.get("_rev"), step=step)
            key = redis.call("GET", f"w{self.number}-0")
            # A transaction writes both the document and the key, or neither. Other edits of the document do not
            # write the key, so the key is never newer than the document.
            found = self.known[f"w{self.number}-0"]
            assert key is None or int(key) <= found.step, (key, found)

    def _check_document(self, couch: Couch, database: str, id_: str, known: Known) -> None:
        answer = couch.get(f"/{database}/{id_}?open_revs=all&revs=true")
        if answer.status == 404:
            assert known.rev is None, f"{id_} was acknowledged as {known.rev} and is not there"
            known.unanswered = None
            return
        leaves = answer.json
        assert len(leaves) == 1, f"{id_} has conflicts that nobody made: {leaves}"
        leaf = leaves[0]["ok"]
        start, ids = leaf["_revisions"]["start"], leaf["_revisions"]["ids"]
        path = [f"{start - back}-{hash_}" for back, hash_ in enumerate(ids)]
        lost = set(known.acknowledged[-len(path) :]) - set(path)
        assert not lost, f"{id_}: acknowledged and lost: {lost}"
        deleted = leaf.get("_deleted", False)
        if leaf["_rev"] != known.rev:
            assert known.unanswered is not None, f"{id_} has {leaf['_rev']}, which nobody sent"
            assert deleted or leaf["step"] == known.unanswered, (id_, leaf, known.unanswered)
            known.step = known.unanswered
            known.acknowledged.append(leaf["_rev"])
        known.rev, known.deleted, known.unanswered = leaf["_rev"], deleted, None


def check_feed(server: Server, database: str, writers: list[DocumentWriter]) -> None:
    """Each document is in the feed once, with its current revision; counts and listing agree."""
    with Couch(server.http_port) as couch:
        known = {id_: document for writer in writers for id_, document in writer.known.items() if document.rev}
        rows = couch.ok("GET", f"/{database}/_changes")["results"]
        assert sorted(row["id"] for row in rows) == sorted(known)
        for row in rows:
            assert [change["rev"] for change in row["changes"]] == [known[row["id"]].rev], row
            assert row.get("deleted", False) == known[row["id"]].deleted, row
        sequences = [int(row["seq"].split("-")[0]) for row in rows]
        assert sequences == sorted(set(sequences))
        listed = {row["id"]: row["value"]["rev"] for row in couch.ok("GET", f"/{database}/_all_docs")["rows"]}
        assert listed == {id_: document.rev for id_, document in known.items() if not document.deleted}
        info = couch.ok("GET", f"/{database}")
        assert (info["doc_count"], info["doc_count"] + info["doc_del_count"]) == (len(listed), len(known))


def storm(server: Server, database: str, writers: list[DocumentWriter], edits: int) -> list[threading.Thread]:
    """Starts all writers; returns once this many more edits were acknowledged."""
    before = sum(writer.acknowledged for writer in writers)
    threads = [threading.Thread(target=writer.run, args=(server, database)) for writer in writers]
    for thread in threads:
        thread.start()
    while sum(writer.acknowledged for writer in writers) < before + edits:
        assert any(thread.is_alive() for thread in threads), "no writer goes on"
        threads[0].join(0.005)
    return threads
