"""Stock clients follow a group of real servers: events of Sentinel, HTTP, reads without a majority, a cluster of
one shard.
"""

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

from harness.couch import Couch
from harness.groups import NAME, fields, group_of, member, others, settle, wait_leader
from harness.replicas import call, error_of, info, is_following
from harness.resp import UNREACHABLE
from harness.server import ANY_PORTS, Server, free_port, run_sheaf
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

SLOT_OF_K = 7629
# After which a sender that no roster lists is disconnected.
SILENCE_S = 10
EMULATION = ("--cluster-emulation", "yes")
CLIENTS = Path(__file__).parents[1] / "clients"


class Events:
    """What a subscriber of everything hears from one member."""

    def __init__(self, server: Server):
        self.client = redis.Redis(port=server.port, socket_timeout=60)
        self.pubsub = self.client.pubsub()
        self.pubsub.psubscribe("*")
        self.heard: list[tuple[str, str]] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pubsub.close()
        self.client.close()

    def listen(self) -> None:
        """Takes a message, if one comes soon."""
        message = self.pubsub.get_message(timeout=0.05)
        if message and message["type"] == "pmessage":
            self.heard.append((message["channel"].decode(), message["data"].decode()))

    def wait(self, channel: str, text: str) -> None:
        """Waits for a message."""

        def is_heard() -> bool:
            self.listen()
            return (channel, text) in self.heard

        wait_until(f"{channel} {text} in {self.heard}", is_heard)


def written(client, key: str, value: str) -> bool:
    """Whether this client can write; it may be looking for the leader."""
    try:
        return bool(client.set(key, value))
    except redis.RedisError:
        return False


def knows(server: Server, leader: Server) -> bool:
    """Whether it sees this member as the leader."""
    return fields(server, "GROUP", "INFO")["leader-address"] == f"127.0.0.1:{leader.port}".encode()


def hears_all(server: Server) -> bool:
    """Whether no member is down for this one."""
    replicas = call(server, "SENTINEL", "REPLICAS", NAME)
    return len(replicas) == 2 and not any(b"s_down" in fact for replica in replicas for fact in replica)


def test_members_publish_the_events_of_sentinel(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    follower, last = others(servers, leader)
    for server in (follower, last):
        wait_until("it to know the leader", lambda one=server: knows(one, leader))
    with Events(follower) as here, Events(last) as there:
        leader.kill()
        new = wait_leader([follower, last])
        old = f"127.0.0.1 {leader.port}"
        for events in (here, there):
            for name in (NAME, "mymaster"):
                switch = f"{name} {old} 127.0.0.1 {new.port}"
                events.wait("+switch-master", switch)
                events.wait("switch-master", switch)
                slave = f"slave 127.0.0.1:{leader.port} {old} @ {name} 127.0.0.1 {new.port}"
                events.wait("+slave", slave)
                events.wait("+sdown", slave)
        leader.start()
        for events in (here, there):
            events.wait("-sdown", f"slave 127.0.0.1:{leader.port} {old} @ {NAME} 127.0.0.1 {new.port}")
    log = run_log(new)
    assert "switch-master" not in log, "events are in no log"


def test_followers_that_have_nothing_to_tell_each_other_stay_connected(new_server):
    """Followers send each other nothing, and a stranger that sends nothing is disconnected after 10 s."""
    servers = group_of(new_server)
    for server in servers:
        wait_until("it to hear the others", lambda one=server: hears_all(one))
    with contextlib.ExitStack() as stack:
        listening = [stack.enter_context(Events(server)) for server in servers]
        over = time.monotonic() + 2.5 * SILENCE_S
        while time.monotonic() < over:
            for events in listening:
                events.listen()
        for server, events in zip(servers, listening, strict=True):
            call(server, "PUBLISH", "over", "now")
            events.wait("over", "now")
            if server != servers[0]:
                down = {text for channel, text in events.heard if channel == "+sdown"}
                assert not any(f":{one.port} " in text for one in servers[1:] for text in down), events.heard


def run_log(server: Server) -> str:
    """What its log has, after it was stopped."""
    assert server.stop() == 0
    printed = run_sheaf("log", str(server.directory))
    assert printed.returncode == 0, printed.stderr
    return printed.stdout


def test_connections_to_a_leader_that_hands_over_are_closed(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    with leader.connect() as idle, leader.connect() as busy:
        assert idle.call("GET", "k") is None
        assert busy.call("FAILOVER") == b"OK"
        for connection in (idle, busy):
            with pytest.raises(UNREACHABLE):
                connection.read()


def test_redis_py_finds_the_leader_by_the_usual_name_at_the_sentinel_port(new_server):
    port = free_port()
    first = member(new_server, extra=("--sentinel-port", str(port))).start()
    wait_leader([first])
    rest = [member(new_server, first).start() for _ in range(2)]
    sentinels = [("127.0.0.1", port), *(("127.0.0.1", server.port) for server in rest)]
    sentinel = Sentinel(sentinels, socket_timeout=5)
    master = sentinel.master_for("mymaster", socket_timeout=5)
    assert master.set("k", "before")
    assert sentinel.discover_master("mymaster") == ("127.0.0.1", first.port)
    assert redis.Redis(port=port).get("k") == b"before", "the same service"
    settle([first, *rest], 3)
    first.kill()
    wait_until("the client to find the new leader", lambda: written(master, "k", "after"))
    assert master.get("k") == b"after"
    ports = (*ANY_PORTS, "--sentinel-port", str(rest[0].port))
    refused = run_sheaf("serve", "--dir", str(first.directory.with_name("other")), *ports)
    assert refused.returncode != 0 and "cannot listen on" in refused.stderr


def test_over_http_a_follower_says_where_the_leader_is(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    follower, last = others(servers, leader)
    with Couch(leader.http_port) as couch:
        assert couch.send("PUT", "/notes").status == 201
        assert couch.send("PUT", "/notes/a", {"n": 1}).status == 201
    wait_until("it to know the leader", lambda: knows(follower, leader))
    with Couch(follower.http_port) as couch:
        wait_until("the documents", lambda: couch.get("/notes/a").status == 200)
        for method, path, body in [
            ("PUT", "/notes/b", {}),
            ("POST", "/notes/_bulk_docs", {"docs": [{}]}),
            ("PUT", "/other", None),
            ("PUT", "/notes/_local/x", {}),
        ]:
            refused = couch.send(method, path, body)
            status, error, reason = refused.told()
            assert (status, error) == (503, "service_unavailable") and "leader" in reason
            assert refused.headers["Retry-After"] == "1"
        assert couch.get("/_up").json == {"status": "ok"}
        assert call(follower, "CONFIG", "SET", "http-redirect", "yes") == b"OK"
        moved = couch.send("PUT", "/notes/b?batch=ok&new_edits=true", {"n": 2})
        assert moved.status == 307
        location = f"http://127.0.0.1:{leader.http_port}/notes/b?batch=ok&new_edits=true"
        assert moved.headers["Location"] == location
        assert couch.get("/notes/a").status == 200, "reads stay here"
    leader.kill()
    last.kill()
    with Couch(follower.http_port) as couch:
        up = wait_until("no majority", lambda: (it := couch.get("/_up")).status == 503 and it)
        assert up.json["error"] == "no_majority"
        assert (info(follower)["role"], call(follower, "ROLE")[0]) == ("slave", b"slave")
        assert b"\nsheaf_replication_leader 0\n" in couch.get("/metrics").body
        for refused in (couch.send("PUT", "/notes/c", {}), couch.get("/notes/a")):
            assert refused.told()[:2] == (503, "service_unavailable") and "majority" in refused.told()[2]
            assert refused.headers["Retry-After"] == "1"
        assert call(follower, "CONFIG", "SET", "stale-reads", "yes") == b"OK"
        assert couch.get("/notes/a").json["n"] == 1
        assert couch.send("PUT", "/notes/c", {}).status == 503
    last.start()
    wait_leader([follower, last])
    with Couch(follower.http_port) as couch:
        wait_until("a majority", lambda: couch.get("/_up").status == 200)


def test_a_feed_at_a_follower_that_is_behind_waits_instead_of_beginning_anew(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    follower = others(servers, leader)[0]
    with Couch(leader.http_port) as couch, Couch(follower.http_port) as behind:
        assert couch.send("PUT", "/notes").status == 201
        for name in ("a", "b"):
            assert couch.send("PUT", f"/notes/{name}", {}).status == 201
        last = couch.ok("GET", "/notes/_changes")["last_seq"]
        wait_until("the follower to have it", lambda: behind.ok("GET", "/notes/_changes")["last_seq"] == last)
        # What a consumer would have read at the leader before the follower gets it.
        number, _, database = last.partition("-")
        later = f"{int(number) + 1}-{database}"
        answer = behind.ok("GET", f"/notes/_changes?since={later}")
        assert (answer["results"], answer["last_seq"]) == ([], later)
        assert couch.send("PUT", "/notes/c", {}).status == 201
        assert couch.send("PUT", "/notes/d", {}).status == 201
        [row] = behind.ok("GET", f"/notes/_changes?since={later}&feed=longpoll")["results"]
        assert row["id"] == "d"


def test_without_a_majority_reads_are_refused_unless_old_data_may_be_shown(new_server):
    servers = group_of(new_server)
    leader = servers[0]
    assert call(leader, "SET", "k", "v") == b"OK"
    follower, last = others(servers, leader)
    wait_until("it to have it", lambda: call(follower, "GET", "k") == b"v")
    leader.kill()
    last.kill()

    def refuses() -> bool:
        return error_of(call(follower, "GET", "k")).startswith("CLUSTERDOWN The group has no leader")

    wait_until("it to refuse reads", refuses)
    assert call(follower, "PING") == b"PONG"
    assert error_of(call(follower, "EVAL", "return redis.call('GET', KEYS[1])", 1, "k")) != ""
    assert error_of(call(follower, "EVAL", "#!lua\nreturn 1", 0)).startswith("CLUSTERDOWN")
    assert fields(follower, "GROUP", "INFO")["leader"] is None
    assert call(follower, "CONFIG", "SET", "stale-reads", "yes") == b"OK"
    assert call(follower, "GET", "k") == b"v"
    assert error_of(call(follower, "SET", "k", "x")).startswith("CLUSTERDOWN")
    assert call(follower, "CONFIG", "SET", "stale-reads", "no") == b"OK"
    assert refuses()
    last.start()
    new = wait_leader([follower, last])
    assert call(new, "GET", "k") == b"v"


def test_a_member_that_was_removed_shows_nothing_old(new_server):
    servers = group_of(new_server)
    leader, removed = servers[0], servers[1]
    assert call(leader, "SET", "k", "v") == b"OK"
    wait_until("it to have it", lambda: call(removed, "GET", "k") == b"v")
    rows = call(leader, "GROUP", "MEMBERS")
    listed = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
    (old,) = [one for one in listed if one[b"address"] == f"127.0.0.1:{removed.port}".encode()]
    assert call(leader, "GROUP", "REMOVE", old[b"id"]) == b"OK"

    # It has started, restarted with the copy of the data, and restarts because it was removed.
    wait_until("it to restart", lambda: removed.log().count("server: ready") == 3)
    assert error_of(call(removed, "GET", "k")).startswith("MASTERDOWN")
    with Couch(removed.http_port) as couch:
        assert couch.get("/_up").status == 503
    assert call(leader, "GET", "k") == b"v"


def test_a_server_alone_is_a_cluster_of_one_node(new_server):
    server = new_server(extra=EMULATION).start()
    cluster = RedisCluster(host="127.0.0.1", port=server.port)
    assert cluster.set("k", "v") and cluster.get("k") == b"v"
    assert cluster.cluster_keyslot("k") == SLOT_OF_K
    assert cluster.cluster_info()["cluster_state"] == "ok"
    assert cluster.cluster_countkeysinslot(SLOT_OF_K) == 1
    assert cluster.cluster_get_keys_in_slot(SLOT_OF_K, 10) == ["k"]
    assert len(cluster.cluster_nodes()) == 1
    assert cluster.mset_nonatomic({"a": 1, "b": 2}) and cluster.mget_nonatomic("a", "b") == [b"1", b"2"]
    assert cluster.info("cluster")["cluster_enabled"] == 1
    assert call(server, "MSET", "a", 3, "b", 4) == b"OK", "keys of several slots"
    assert call(server, "CONFIG", "SET", "cluster-emulation", "no") == b"OK"
    assert error_of(call(server, "CLUSTER", "SLOTS")) == "ERR This instance has cluster support disabled"


def test_a_group_is_a_cluster_of_one_shard(new_server):
    servers = group_of(new_server, extra=EMULATION)
    leader = servers[0]
    follower, last = others(servers, leader)
    wait_until("it to know the leader", lambda: knows(follower, leader))
    moved = f"MOVED {SLOT_OF_K} 127.0.0.1:{leader.port}"
    assert error_of(call(follower, "SET", "k", "v")) == moved
    assert error_of(call(follower, "GET", "k")) == moved
    with follower.connect() as connection:
        assert connection.call("READONLY") == b"OK"
        assert not error_of(connection.call("GET", "k"))
        assert error_of(connection.call("SET", "k", "v")) == moved
    nodes = [ClusterNode("127.0.0.1", server.port) for server in servers]
    cluster = RedisCluster(startup_nodes=nodes, socket_timeout=5)
    assert cluster.set("k", "before") and cluster.get("k") == b"before"
    assert len(cluster.get_primaries()) == 1
    ids = {call(server, "CLUSTER", "MYID") for server in servers}
    assert ids == {node[2] for node in call(leader, "CLUSTER", "SLOTS")[0][2:]}
    readers = RedisCluster(startup_nodes=nodes, socket_timeout=5, load_balancing_strategy=None, read_from_replicas=True)
    wait_until("replicas to have it", lambda: all(readers.get("k") == b"before" for _ in range(6)))
    leader.kill()
    wait_until("the client to find the new leader", lambda: written(cluster, "k", "after"))
    assert cluster.get("k") == b"after"
    new = wait_leader([follower, last])
    assert cluster.get_primaries()[0].port == new.port
    with contextlib.suppress(*UNREACHABLE):
        call(new, "CLUSTER", "NODES")
    leader.start()
    wait_until("it to follow", lambda: is_following(leader))
    assert error_of(call(leader, "SET", "k", "v")) == f"MOVED {SLOT_OF_K} 127.0.0.1:{new.port}"


@pytest.fixture(scope="session")
def go_actor(tmp_path_factory) -> list[str]:
    """The command of go-redis' clients."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: go-redis is not tested")
    binary = tmp_path_factory.mktemp("go") / "group_actor"
    command = ["go", "build", "-o", str(binary), "."]
    subprocess.run(command, cwd=CLIENTS / "go/group_actor", check=True, timeout=600)
    return [str(binary)]


@pytest.fixture(scope="session")
def java_actor(tmp_path_factory) -> list[str]:
    """The command of the clients of Jedis and Lettuce."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed: Jedis and Lettuce are not tested")
    output = tmp_path_factory.mktemp("java")
    command = ["mvn", "--quiet", "--batch-mode", f"-Doutput={output}", "package"]
    subprocess.run(command, cwd=CLIENTS / "java/group_actor", check=True, timeout=600)
    return ["java", "-cp", f"{output}/classes:{output}/classes/*", "GroupActor"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
@pytest.mark.parametrize("library", ["go-redis", "jedis", "lettuce"])
def test_a_client_library_follows_the_leader(new_server, request, library, kind):
    is_go = library == "go-redis"
    actor = request.getfixturevalue("go_actor" if is_go else "java_actor") + ([] if is_go else [library])
    servers = group_of(new_server, extra=EMULATION if kind == "cluster" else ())
    ports = [str(server.port) for server in servers]
    with subprocess.Popen(
        [*actor, kind, NAME, *ports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as clients:

        def answer(value: str) -> str:
            print("k", value, file=clients.stdin, flush=True)
            return clients.stdout.readline().strip()

        assert answer("before") == "OK"
        servers[0].kill()
        wait_until("the client to find the new leader", lambda: answer("after") == "OK")
        clients.stdin.close()
    assert call(wait_leader(servers[1:]), "GET", "k") == b"after"
