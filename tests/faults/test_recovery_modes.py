"""Damage and its handling: found while the server runs, avoided by an older snapshot, skipped."""

import json
import shutil
from functools import partial

import pytest
import redis
from redis.crc import key_slot

from harness.couch import Couch
from harness.server import ANY_PORTS, Server, run_sheaf
from harness.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sheaf_only


def flip_bit(path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def flip_bit_in_place(path, offset: int) -> None:
    """The same in a file that the server has open."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def refused_start(server: Server, *arguments: str) -> str:
    """The message of a start that must fail."""
    refused = run_sheaf("serve", "--dir", str(server.directory), *ANY_PORTS, *arguments)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    return refused.stderr


def client_of(server: Server) -> redis.Redis:
    """A client that waits for snapshots on a slow disk. By default it would send its command again after 5 s."""
    return redis.Redis(port=server.port, socket_timeout=PATIENCE_S)


def start_once(server: Server, *arguments: str) -> redis.Redis:
    """A client of a server started with arguments that later starts do not have."""
    server.options.extra = arguments
    server.start()
    server.options.extra = ()
    return client_of(server)


@pytest.fixture
def with_snapshots(new_server) -> Server:
    """A server with two snapshots and a log behind them, killed. It holds 601 keys."""
    server = new_server(log_segment_bytes="1mb").start()
    client = client_of(server)
    for number in range(3):
        for index in range(200):
            client.set(f"{number}:{index}", f"{number}" * 10_000)
        client.save()
    client.set("after", "the newest")
    server.kill()
    return server


def manifests(server: Server) -> list:
    """The files of the snapshots, the newest first."""
    return sorted((server.directory / "snapshots").glob("*.manifest"), reverse=True)


def begin_of(manifest) -> int:
    """The position at which the snapshot begins."""
    return int(manifest.name.split("-")[1].split(".")[0], 16)


def segment_with(server: Server, content: bytes):
    """The log's file that holds these bytes."""
    return next(path for path in server.directory.glob("log-*.seg") if content in path.read_bytes())


def test_an_older_snapshot_is_offered_and_loses_nothing(with_snapshots):
    server = with_snapshots
    newest, older = manifests(server)
    part = newest.with_name(newest.name.replace("manifest", "0.part"))
    flip_bit(part, 4096 + 200)
    said = refused_start(server)
    base = begin_of(older)
    assert part.name in said
    assert "offset" in said
    assert f"sheaf --dir {server.directory} --recover-from {base}" in said
    assert f"sheaf --dir {server.directory} --recover-from {base}" in run_sheaf("check", str(server.directory)).stderr
    assert "Possible" in refused_start(server, "--recover-from", "1")
    client = start_once(server, "--recover-from", str(base))
    assert client.dbsize() == 601
    assert client.get("after") == b"the newest"
    assert newest.with_name(newest.name + ".damaged").exists()
    assert not newest.exists()
    assert server.stop() == 0
    server.start()
    assert redis.Redis(port=server.port).dbsize() == 601


def test_the_check_of_no_directory_recommends_nothing_dangerous(tmp_path):
    missing = tmp_path / "missing"
    checked = run_sheaf("check", str(missing))
    assert checked.returncode == 1 and f"{missing} does not exist" in checked.stderr, checked.stderr
    assert "force-recovery" not in checked.stderr


def test_a_damaged_snapshot_that_is_not_needed_is_told(with_snapshots):
    server = with_snapshots
    newest, older = manifests(server)[:2]
    flip_bit(older, 100)
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 1 and "DAMAGED" in checked.stdout, checked.stdout
    begin = begin_of(newest)
    assert f"start      works: it begins at lsn {begin}, and does not need" in checked.stdout, checked.stdout
    client = redis.Redis(port=server.start().port)
    assert client.get("after") == b"the newest" and client.dbsize() == 601
    assert "an older snapshot is damaged: nothing is lost" in server.log()


def test_damaged_parts_are_left_out_and_the_loss_must_be_accepted(with_snapshots):
    server = with_snapshots
    for manifest in manifests(server):
        for part in manifest.parent.glob(manifest.name.replace("manifest", "*.part")):
            flip_bit(part, 4096 + 200)
    assert "--force-recovery" in refused_start(server, "--recover-from", str(begin_of(manifests(server)[-1])))
    client = start_once(server, "--force-recovery")
    report = json.loads((server.directory / "recovery-report.json").read_text())
    lost = report["left_out"]["slots"]
    assert {place["what"] for place in report["places"]} == {"snapshot", "snapshot chunks"}
    assert lost
    assert report["recovered"]["keys"] == client.dbsize() < 601
    for key in (f"{number}:{index}" for number in range(3) for index in range(200)):
        slot = key_slot(key.encode())
        in_lost_slot = any(first <= slot <= last for first, last in lost)
        assert client.get(key) == (None if in_lost_slot else key[0].encode() * 10_000), key
    assert client.get("after") == b"the newest"
    follow = partial(client.replicaof, "127.0.0.1", 1)
    for refused in (lambda: client.set("k", "v"), client.save, client.bgsave, lambda: client.delete("after"), follow):
        with pytest.raises(redis.ResponseError, match="confirm"):
            refused()
    assert client.config_get("force-recovery") == {"force-recovery": "unconfirmed"}
    assert client.info("persistence")["recovery_unconfirmed"] == 1
    keys = client.dbsize()
    server.kill()
    refused_start(server)
    client = start_once(server, "--force-recovery")
    assert "left out: " in server.log() and "Some(" not in server.log()
    assert client.config_set("force-recovery", "confirmed") is True
    server.wait_for_log("the log was confirmed and takes writes")
    assert "the log has room again" not in server.log()
    assert client.set("k", "v") is True
    assert client.config_get("force-recovery") == {"force-recovery": "no"}
    assert not (server.directory / "recovery-report.json").exists()
    assert list(server.directory.glob("recovery-report-confirmed-*.json"))
    server.kill()
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    server.start()
    client = redis.Redis(port=server.port)
    assert client.dbsize() == keys + 1
    assert client.get("k") == b"v"
    with pytest.raises(redis.ResponseError, match="no forced recovery to confirm"):
        client.config_set("force-recovery", "confirmed")


def test_a_hole_in_the_log_is_passed_over_and_reported(with_snapshots):
    server = with_snapshots
    client = redis.Redis(port=server.start().port)
    for index in range(100):
        client.set(f"log:{index}", f"{index}" * 1000)
    server.kill()
    segment = segment_with(server, b"log:50")
    flip_bit(segment, segment.read_bytes().index(b"log:50"))
    said = refused_start(server)
    assert segment.name in said
    assert "--force-recovery" in said
    client = start_once(server, "--force-recovery")
    report = json.loads((server.directory / "recovery-report.json").read_text())
    (place,) = report["places"]
    assert place["file"] == str(segment)
    assert place["slots"] == "unknown"
    assert place["lsns"][1] - place["lsns"][0] == place["bytes"] > 0
    assert place["written_after"] <= place["written_before"]
    missing = {index for index in range(100) if client.get(f"log:{index}") != f"{index}".encode() * 1000}
    assert missing == {50}
    assert client.config_set("force-recovery", "confirmed") is True
    assert client.set("log:50", "again") is True
    assert server.stop() == 0
    server.start()
    assert redis.Redis(port=server.port).get("log:50") == b"again"


def test_readers_of_durable_channels_learn_that_a_forced_recovery_has_lost_their_messages(with_snapshots):
    server = with_snapshots
    server.start()
    with server.connect() as publisher, server.connect() as reader:
        assert publisher.call("CONFIG", "SET", "durable-channels", "orders audit") == b"OK"
        assert reader.call("XSUBSCRIBE", "orders", "FROM", "-")[0] == b"xsubscribe"
        for number in range(3):
            publisher.call("PUBLISH", "orders", number)
        publisher.call("PUBLISH", "audit", "intact")
        seen = [reader.read()[2] for _ in range(3)]
        assert publisher.call("SAVE") == b"OK"
        assert publisher.call("SET", "behind", "hole" * 100) == b"OK"
        assert publisher.call("PUBLISH", "orders", "behind the snapshot") == 1
    server.kill()
    segment = segment_with(server, b"hole" * 100)
    flip_bit(segment, segment.read_bytes().index(b"hole" * 100))
    start_once(server, "--force-recovery")
    lost = json.loads((server.directory / "recovery-report.json").read_text())["durable_channels"]
    assert lost["messages"] == 5 and lost["perhaps_more_in_damaged_parts"] is True, lost
    assert {of["channel"]: of["messages"] for of in lost["channels"]} == {"orders": 4, "audit": 1}
    first, last = lost["channels"][1]["lsns"]
    assert first < int(seen[1].split(b":")[1]) < last
    server.wait_for_log("drops all messages of durable channels")
    with server.connect() as client:
        assert "must be confirmed first" in client.call("XSUBSCRIBE", "orders", "FROM", seen[0]).text
        assert client.call("CONFIG", "SET", "force-recovery", "confirmed") == b"OK"
    server.wait_for_log("all earlier messages of durable channels are lost")

    def readers_are_told() -> bytes:
        """The oldest position, at which a reader can go on."""
        with server.connect() as reader:
            refused = reader.call("XSUBSCRIBE", "orders", "FROM", seen[0]).text
            assert refused.startswith(f"LOST position {seen[0].decode()} is no longer kept: a forced recovery"), refused
            assert reader.call("XSUBSCRIBE", "orders", "FROM", "-")[0] == b"xsubscribe"
            verb, channel, oldest, left = reader.read()
            assert (verb, channel, left) == (b"xlost", b"orders", 0)
            assert refused.endswith(f"the oldest position, {oldest.decode()}")
            assert reader.call("XSUBSCRIBE", "orders", "FROM", oldest)[:3] == [b"xsubscribe", b"orders", oldest]
        return oldest

    oldest = readers_are_told()
    server.kill()
    server.start()
    with server.connect() as publisher, server.connect() as reader:
        assert publisher.call("PUBLISH", "orders", "new") == 0
        assert readers_are_told() == oldest
        assert reader.call("XSUBSCRIBE", "orders", "FROM", oldest)[0] == b"xsubscribe"
        assert reader.read()[3] == b"new"
    server.kill()
    assert run_sheaf("check", str(server.directory)).returncode == 0


def document_numbers(server: Server) -> dict[str, int]:
    with Couch(server.http_port) as couch:
        rows = couch.ok("GET", "/db/_all_docs?include_docs=true")["rows"]
        return {row["id"]: row["doc"]["n"] for row in rows}


@pytest.fixture
def with_documents(new_server) -> Server:
    """A server with 20 saved documents, 100 keys behind them in the log, and 20 documents behind these; killed."""
    server = new_server(log_segment_bytes="1mb").start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/db")
        for number in range(20):
            couch.put("db", {"_id": f"saved-{number}", "n": number})
    assert server.stop() == 0
    client = client_of(server.start())
    for index in range(100):
        client.set(f"log:{index}", f"{index}" * 1000)
    with Couch(server.http_port) as couch:
        for number in range(20):
            couch.put("db", {"_id": f"log-{number}", "n": number})
    server.kill()
    return server


def test_a_confirmation_that_fails_leaves_the_directory_as_it_was(with_documents):
    """Documents are saved, and the control file is replaced, only once the snapshot of memory exists."""
    server = with_documents
    segment = segment_with(server, b"log:50")
    flip_bit(segment, segment.read_bytes().index(b"log:50"))
    client = start_once(server, "--force-recovery")
    control = (server.directory / "control").read_bytes()
    trees = {path.name: path.read_bytes() for path in (server.directory / "documents").iterdir() if path.is_file()}
    # The new log begins after the last segment. A directory stands in the way of a part of the snapshot there.
    end = max(int(path.stem.removeprefix("log-"), 16) for path in server.directory.glob("log-*.seg")) + (1 << 20)
    in_the_way = server.directory / "snapshots" / f"snap-{end:016x}.0.part"
    in_the_way.mkdir(parents=True)
    with pytest.raises(redis.ResponseError, match="the forced recovery is not confirmed"):
        client.config_set("force-recovery", "confirmed")
    assert (server.directory / "control").read_bytes() == control
    now = {path.name: path.read_bytes() for path in (server.directory / "documents").iterdir() if path.is_file()}
    assert now == trees
    in_the_way.rmdir()
    server.kill()
    assert segment.name in refused_start(server)
    client = start_once(server, "--force-recovery")
    documents = document_numbers(server)
    assert documents == {f"{kind}-{number}": number for kind in ("saved", "log") for number in range(20)}
    assert client.config_set("force-recovery", "confirmed") is True
    with Couch(server.http_port) as couch:
        couch.put("db", {"_id": "new", "n": 1})
    server.kill()
    server.start()
    assert document_numbers(server) == documents | {"new": 1}
    shutil.rmtree(server.directory / "documents")
    server.kill()
    assert "documents" in refused_start(server)


def test_without_damage_forcing_does_nothing(with_snapshots):
    server = with_snapshots
    client = start_once(server, "--force-recovery")
    assert "nothing is damaged" in server.log()
    assert client.dbsize() == 601
    assert client.set("k", "v") is True
    assert not (server.directory / "recovery-report.json").exists()


def scrubbed(client) -> dict:
    """The findings of a round that begins now."""
    before = client.info("persistence")["scrub_rounds"]
    client.config_set("scrub-interval-seconds", 0)
    wait_until("two rounds have ended", lambda: client.info("persistence")["scrub_rounds"] >= before + 2)
    client.config_set("scrub-interval-seconds", 86_400)
    return client.info("persistence")


def test_a_round_over_sound_files_finds_nothing(with_snapshots):
    client = redis.Redis(port=with_snapshots.start().port)
    found = scrubbed(client)
    assert found["scrub_damaged_files"] == 0
    assert found["scrub_bytes"] > 1_000_000
    assert found["scrub_last_round_time"] > 0
    client.config_set("scrub-rate-bytes", 0)
    client.config_set("scrub-interval-seconds", 0)
    wait_until("no round is running", lambda: client.info("persistence")["scrub_in_progress"] == 0)


@pytest.mark.parametrize("what", ["newest", "older", "log", "newest segment", "control"])
def test_damage_that_is_found_while_the_server_runs_does_no_harm(with_snapshots, what):
    server = with_snapshots
    client = redis.Redis(port=server.start().port)
    newest, older = manifests(server)
    if what in ("newest", "older"):
        manifest = {"newest": newest, "older": older}[what]
        damaged, offset = manifest.with_name(manifest.name.replace("manifest", "0.part")), 4096 + 200
    elif what in ("log", "newest segment"):
        value = {"log": b"2:100", "newest segment": b"the newest"}[what]
        damaged = segment_with(server, value)
        offset = damaged.read_bytes().index(value)
    else:
        damaged, offset = server.directory / "control", 40
    def damage_is_found() -> bool:
        flip_bit_in_place(damaged, offset)
        return scrubbed(client)["scrub_damaged_files"] >= 1

    # A server that has just started may replace its control file, damaged or not.
    wait_until("the damage is found", damage_is_found)
    assert damaged.name in server.log()
    wait_until("it is not needed any more", lambda: "no longer needed" in server.log())
    server.kill()
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    client = redis.Redis(port=server.start().port)
    assert client.dbsize() == 601
    assert client.get("after") == b"the newest"
