"""Users with patterns of keys, certificates, and handshakes, for the cases of door_cases.py.

As a program (`python3 doors.py PORT CA RATE`) it is one client of TLS that connects again and again until its
input ends, and prints how often it has.
"""

import select
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import resp
from door_cases import ALONE, BESIDE, Door
from servers import Ports, Program, Server, ServerFailed

PASSWORD = "pw"
# More than one, because a client of TLS is slower than a server: it checks the chain.
CLIENTS = 2
# Between two requests of the client that is disturbed.
REST_S = 0.0005

Figures = dict[str, float | None]


def make_certificates(sheaf: str, directory: Path) -> None:
    """An authority and a certificate for a server, in files of PEM."""
    made = subprocess.run([sheaf, "certs", str(directory)], capture_output=True, text=True, timeout=60, check=False)
    if made.returncode != 0:
        raise ServerFailed(f"no certificates: {made.stderr}")


def add_users(client: resp.Client, doors: tuple[Door, ...]) -> None:
    """A user for each door that needs one. The keys of the load match the last pattern of each."""
    for door in doors:
        if door.patterns:
            others = [f"~other{number}:*" for number in range(door.patterns - 1)]
            client.call("ACL", "SETUSER", _user(door), "on", f">{PASSWORD}", "+@all", *others, "~key:*")


def through(door: Door, program: Program, ports: Ports) -> tuple[int | str, tuple[str, ...]]:
    """The port of the door, and the arguments with which redis-benchmark uses it."""
    if door.is_tls:
        return ports.tls, ("--tls", "--cacert", str(authority(program)))
    if door.patterns:
        return ports.resp, ("--user", _user(door), "-a", PASSWORD)
    return ports.resp, ()


def authority(program: Program) -> Path:
    """The certificate of the authority that has signed the program's."""
    if program.certificates is None:
        raise ServerFailed(f"{program.name} has no certificate")
    return program.certificates / "ca.crt"


def measure_handshakes(server: Server, rate: int, requests: int) -> dict[str, Figures]:
    """The waiting times of a client alone, and beside new connections over TLS."""
    words = [sys.executable, __file__, str(server.ports.tls), str(authority(server.program)), str(rate / CLIENTS)]
    with server.client() as client:
        alone, alone_cpu_s = _waits(server, client, requests)
        others = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(CLIENTS)]
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        begun = time.monotonic()
        beside, beside_cpu_s = _waits(server, client, requests)
        # The end of their input ends them.
        done = sum(int(other.communicate(timeout=60)[0]) for other in others)
    beside["handshakes_s"] = done / (time.monotonic() - begun)
    beside["handshake_cpu_us"] = (beside_cpu_s - alone_cpu_s) / done * 1e6
    return {ALONE: alone, BESIDE: beside}


def _waits(server: Server, client: resp.Client, requests: int) -> tuple[Figures, float]:
    """The waiting times of requests one at a time, and the CPU seconds of the server meanwhile."""
    times_s, cpu_before = [], server.cpu_s()
    for number in range(requests):
        started = time.perf_counter()
        client.call("GET", f"key:{number:012d}")
        times_s.append(time.perf_counter() - started)
        # A client that rests, as most do: it is not the load that makes others wait.
        time.sleep(REST_S)
    times_s.sort()
    figures = {
        "p50_ms": times_s[requests // 2] * 1e3,
        "p99_ms": times_s[requests * 99 // 100] * 1e3,
        "longest_ms": times_s[-1] * 1e3,
    }
    return figures, server.cpu_s() - cpu_before


def _user(door: Door) -> str:
    return f"user{door.patterns}"


def _connect_again_and_again(port: int, ca: str, rate: float) -> int:
    """Connects over TLS and sends PING, `rate` times a second, until the input ends; the number of times."""
    context = ssl.create_default_context(cafile=ca)
    done, begun = 0, time.monotonic()
    while done == 0 or not select.select([sys.stdin], [], [], max(begun + done / rate - time.monotonic(), 0))[0]:
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1") as client:
            client.sendall(b"PING\r\n")
            if client.recv(7) != b"+PONG\r\n":
                raise ServerFailed("no PONG over TLS")
        done += 1
        if done == 1:
            print("connected", flush=True)
    return done


if __name__ == "__main__":
    print(_connect_again_and_again(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
