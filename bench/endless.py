"""An endless script on one worker of Sheaf, and the waiting times of clients of the other workers.

Several connections send requests in turns. The connections that share the worker of the script are found by a
request: they get no answer. This is not a load: one request is in flight at any time.
"""

import time

import resp

CONNECTIONS = 16
REQUESTS = 20_000
# A connection without an answer for this time is served by the worker of the script.
SILENCE_S = 0.3
SCRIPT = "while true do end"
UNDISTURBED, DISTURBED = "GET", "GET beside the script"

Figures = dict[str, float | None]


def measure(port: int, requests: int) -> dict[str, Figures]:
    """The figures of the same connections without the script and beside it."""
    with resp.Client(port) as runner:
        # Before the script begins, so that the connections are spread over the workers.
        clients = [resp.Client(port, SILENCE_S) for _ in range(CONNECTIONS)]
        runner.send("EVAL", SCRIPT, "0")
        time.sleep(SILENCE_S)
        others = [client for client in clients if _answers(client)]
        if not 0 < len(others) < CONNECTIONS:
            raise resp.ServerReply(f"{len(others)} of {CONNECTIONS} connections are answered beside the script")
        disturbed = _waits(others, requests)
        others[0].call("SCRIPT", "KILL")
        try:
            runner.receive()
        except resp.ServerReply as error:
            if "killed" not in str(error):
                raise
        undisturbed = _waits(others, requests)
        for client in clients:
            client.close()
    return {UNDISTURBED: undisturbed, DISTURBED: disturbed}


def _answers(client: resp.Client) -> bool:
    try:
        return client.call("PING") == "PONG"
    except TimeoutError:
        return False


def _waits(clients: list[resp.Client], requests: int) -> Figures:
    times_s = []
    for number in range(requests):
        client, started = clients[number % len(clients)], time.perf_counter()
        client.call("GET", f"key:{number}")
        times_s.append(time.perf_counter() - started)
    times_s.sort()
    return {
        "p50_ms": times_s[requests // 2] * 1e3,
        "p99_ms": times_s[requests * 99 // 100] * 1e3,
        "longest_ms": times_s[-1] * 1e3,
    }
