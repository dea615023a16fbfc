"""Commands of the Redis protocol over HTTP (`/_redis`), and the page of the console."""

import base64
import gzip
import json
import threading

import pytest
import redis

from harness.couch import Couch
from harness.waiting import wait_until

pytestmark = pytest.mark.sheaf_only

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def run(couch: Couch, *commands):
    """The replies to commands, each given as a line of words."""
    return couch.ok("POST", "/_redis", [command.split() for command in commands])


def encoded(content: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(content).decode()}


def test_replies_come_in_the_order_of_the_commands(couch):
    assert run(couch, "SET k v", "GET k", "GET none", "INCR k", "HSET h a 1 b 2", "HGETALL h", "EXISTS k") == [
        "OK", "v", None, {"error": "ERR value is not an integer or out of range"}, 2, {"map": [["a", "1"], ["b", "2"]]}, 1,
    ]  # fmt: skip
    assert run(couch) == []


def test_bytes_and_large_integers_survive(couch, server):
    content = bytes(range(256))
    couch.ok("POST", "/_redis", [["SET", encoded(b"\xff"), encoded(content)], ["SET", "n", 2**63 - 1]])
    with redis.Redis(port=server.port) as client:
        assert client.get(b"\xff") == content
    assert couch.ok("POST", "/_redis", [["GET", encoded(b"\xff")], ["INCRBY", "n", 0], ["KEYS", encoded(b"\xff")]]) == [
        encoded(content),
        {"integer": str(2**63 - 1)},
        [encoded(b"\xff")],
    ]


def test_a_request_is_one_client_and_leaves_nothing_behind(couch):
    assert run(couch, "SELECT 3", "SET k three", "CLIENT GETNAME") == ["OK", "OK", "http"]
    assert run(couch, "GET k", "SELECT 3", "GET k") == [None, "OK", "three"]

    def clients() -> list[str]:
        return [line for line in run(couch, "CLIENT LIST")[0].splitlines() if "name=http" in line]

    # The client of an answered request ends on its own thread.
    wait_until("no client of an earlier request to be left", lambda: len(clients()) == 1)


def test_commands_that_need_a_connection_are_refused_and_others_run(couch):
    for command in ("BLPOP q 0", "SUBSCRIBE c", "MULTI", "EXEC", "WATCH k", "MONITOR", "HELLO 3", "CLIENT REPLY OFF",
                    "WAIT 1 0", "XREAD BLOCK 0 STREAMS s $", "XSUBSCRIBE c FROM -", "RESET", "AUTH x", "LEASE a 1 b"):  # fmt: skip
        before, refused, after = run(couch, "ECHO 1", command, "ECHO 2")
        assert (before, after) == ("1", "2"), command
        assert refused["error"].startswith(f"ERR '{command.split()[0].lower()}") and "over HTTP" in refused["error"]
    assert run(couch, "BLPOP q 0")[0]["error"] == "ERR 'blpop' is not available over HTTP: it waits, and a request must end"


def test_other_requests_are_refused(couch):
    malformed = 'The body must be an array of commands, each an array of words: strings, integers, or {"base64": "..."}.'
    for body in (b"", b"{}", b"[1]", b'["GET"]', b'[["GET", null]]', b'[["GET", 1.5]]', b"[["):
        assert couch.send("POST", "/_redis", body).told() == (400, "bad_request", malformed), body
    assert couch.send("POST", "/_redis", [[]]).told()[0] == 400
    assert couch.send("POST", "/_redis", [["PING"]] * 257).told() == (400, "bad_request", "A request has at most 256 commands.")
    large = gzip.compress(json.dumps([["ECHO", "x" * (4 << 20)]]).encode())
    assert couch.send("POST", "/_redis", large, Content_Encoding="gzip").told()[:2] == (413, "too_large")
    assert couch.get("/_redis").told() == (405, "method_not_allowed", "Only POST allowed")
    assert couch.send("POST", "/_redis/none", []).status == 404
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = couch.send("POST", "/_redis", b'[["SET", "k", "v"]]', Content_Type=content_type)
        assert answer.told()[:2] == (415, "bad_content_type"), content_type
    assert run(couch, "EXISTS k") == [0]


def test_replies_have_a_limit(couch):
    run(couch, f"SET k {'x' * (3 << 20)}")
    assert len(run(couch, "GET k", "GET k")[1]) == 3 << 20
    assert couch.send("POST", "/_redis", [["GET", "k"]] * 3).told()[:2] == (413, "too_large")
    run(couch, *(f"RPUSH l {' '.join('x' * 1000)}" for _ in range(100)))
    # 100,001 values each: two replies fit, three do not.
    assert len(run(couch, "LRANGE l 0 -1", "LRANGE l 0 -1")) == 2
    assert couch.send("POST", "/_redis", [["LRANGE", "l", "0", "-1"]] * 3).told()[:2] == (413, "too_large")
    assert run(couch, "PING") == ["PONG"]


@pytest.mark.parametrize(
    "page", [{"Origin": "http://app.example"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "null"}], ids=str
)
def test_no_page_of_another_origin_runs_commands_even_if_cors_admits_it(couch, page):
    couch.ok("PUT", "/_node/_local/_config/httpd/enable_cors", "true")
    couch.ok("PUT", "/_node/_local/_config/cors/origins", "*")
    for path in ("/_redis", "/_redis/channel"):
        assert couch.send("POST", path, [["SET", "k", "v"]], **page).told()[:2] == (403, "forbidden")
    assert run(couch, "EXISTS k") == [0]


def test_a_site_with_a_rebound_name_runs_no_command(couch):
    answer = couch.send("POST", "/_redis", [["PING"]], Host="evil.example")
    assert answer.told()[:2] == (403, "forbidden")
    assert couch.get("/", Accept=BROWSER, Host="evil.example").status == 403


def test_a_password_is_needed_where_one_is_set(new_server):
    server = new_server(requirepass="secret").start()
    for user in (None, ("default", "wrong")):
        with Couch(server.http_port, user) as couch:
            assert couch.send("POST", "/_redis", [["PING"]]).told()[:2] == (401, "unauthorized")
            assert couch.get("/", Accept=BROWSER).status == 200, "the page has the form for it"
    with Couch(server.http_port, ("default", "secret")) as couch:
        assert run(couch, "PING") == ["PONG"]


def test_messages_of_a_durable_channel_are_waited_for(couch, server):
    run(couch, "CONFIG SET durable-channels orders.*", "PUBLISH orders.new 0")

    def follow(position: str):
        return couch.ok("POST", "/_redis/channel", {"channel": "orders.new", "from": position, "wait_ms": 20_000})

    first = follow("-")
    assert [message["message"] for message in first["messages"]] == ["0"]
    with redis.Redis(port=server.port) as client:
        publishing = threading.Thread(target=client.publish, args=("orders.new", b"\xff"))
        publishing.start()
        second = follow(first["next"])
        publishing.join()
    assert [message["message"] for message in second["messages"]] == [encoded(b"\xff")]
    assert second["next"] == second["messages"][-1]["position"]
    request = {"channel": "orders.new", "from": second["next"], "wait_ms": 0}
    assert couch.ok("POST", "/_redis/channel", request) == {"messages": [], "next": second["next"], "lost": None}
    assert "not durable" in couch.ok("POST", "/_redis/channel", request | {"channel": "x"})["error"]
    assert couch.send("POST", "/_redis/channel", {"channel": "x"}).status == 400


@pytest.mark.parametrize("end", ["ACL SETUSER adm -@admin", "ACL SETUSER adm off", "ACL DELUSER adm"])
def test_who_loses_the_right_gets_no_message(new_server, end):
    server = new_server(requirepass="secret").start()
    answers = []
    request = {"channel": "orders.new", "from": "$", "wait_ms": 25_000}
    with redis.Redis(port=server.port, password="secret") as client:
        client.config_set("durable-channels", "orders.*")
        client.execute_command("ACL SETUSER adm on >pw ~* &* +@all")

        def follow() -> None:
            with Couch(server.http_port, ("adm", "pw")) as adm:
                answers.append(adm.send("POST", "/_redis/channel", request).status)

        following = threading.Thread(target=follow)
        following.start()
        wait_until("the request to wait", lambda: any(it["cmd"] == "xsubscribe" for it in client.client_list()))
        client.execute_command(end)
        client.publish("orders.new", "not for adm")
        following.join()
    assert answers == [401]


def test_browsers_get_the_page_and_other_clients_the_greeting_as_before(couch):
    page = couch.get("/", Accept=BROWSER)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"].startswith("default-src 'self';")
    greeting = couch.get("/", Accept="")
    assert greeting.json["couchdb"] == "Welcome"
    for accept in ("*/*", "application/json", "application/json, text/html", "text/html;q=0.1, application/json"):
        answer = couch.get("/", Accept=accept)
        assert answer.body == greeting.body and answer.headers["Content-Type"] == "application/json", accept
        assert "Vary" not in answer.headers and "Content-Security-Policy" not in answer.headers


def test_a_file_of_the_page_is_sent_once(couch):
    plain = couch.get("/_console/app.js")
    assert plain.headers["Content-Type"] == "text/javascript; charset=utf-8"
    zipped = couch.get("/_console/app.js", Accept_Encoding="gzip")
    assert zipped.headers["Content-Encoding"] == "gzip" and len(zipped.body) < len(plain.body)
    again = couch.get("/_console/app.js", If_None_Match=plain.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    assert couch.get("/_console/none.js").status == 404
    assert couch.send("PUT", "/_console/app.js", {}).status == 405
