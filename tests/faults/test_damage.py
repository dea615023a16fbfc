"""Damaged files: a torn tail is cut and reported, any other damage refuses the start and is located."""

import random
import re

import pytest

from harness.couch import Couch
from harness.resp import encode
from harness.server import ANY_PORTS, Server, run_sheaf

pytestmark = pytest.mark.sheaf_only

SEGMENT_HEADER_BYTES = 4096
BLOCK_BYTES = 4096
BATCHES = 120
SPOTS = 24


@pytest.fixture
def written(new_server) -> Server:
    """A server that has written many batches, one per value, and was then killed."""
    server = new_server().start()
    with server.connect() as connection:
        for number in range(BATCHES):
            assert connection.call("SET", f"k{number}", b"%d:" % number * 50) == b"OK"
    server.kill()
    return server


def segments(server: Server):
    """The files of the log, oldest first."""
    return sorted(server.directory.glob("log-*.seg"))


def end_of_log(server: Server) -> int:
    """The position after the last complete batch, according to `sheaf check`."""
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return int(re.search(r"intact from lsn \d+ to (\d+)", checked.stdout)[1])


def refused_start(server: Server) -> str:
    """The message of a start that must fail."""
    refused = run_sheaf("serve", "--dir", str(server.directory), *ANY_PORTS)
    assert refused.returncode not in (0, 101), refused.stdout + refused.stderr
    return refused.stdout + refused.stderr


def test_a_flipped_bit_anywhere_before_the_end_is_found(written):
    [path, *_] = segments(written)
    intact = path.read_bytes()
    # Without the last batches: a bad last batch cannot be distinguished from an interrupted write.
    end = SEGMENT_HEADER_BYTES + end_of_log(written) - 4 * BLOCK_BYTES
    spots = random.Random(1)
    for offset in sorted(spots.randrange(SEGMENT_HEADER_BYTES, end) for _ in range(SPOTS)):
        damaged = bytearray(intact)
        damaged[offset] ^= 1 << spots.randrange(8)
        path.write_bytes(damaged)
        checked = run_sheaf("check", str(written.directory))
        assert checked.returncode not in (0, 101), f"bit flip at {offset}: {checked.stdout}"
        told = re.search(r"offset (\d+)", checked.stdout + checked.stderr)
        assert told, checked.stderr
        assert path.name in checked.stdout + checked.stderr
        assert abs(int(told[1]) - offset) <= 2 * BLOCK_BYTES, f"flipped at {offset}: {checked.stderr}"
    path.write_bytes(intact)
    assert end_of_log(written) > 0


def test_damage_in_the_middle_refuses_to_start_and_changes_nothing(written):
    [path, *_] = segments(written)
    raw = bytearray(path.read_bytes())
    offset = SEGMENT_HEADER_BYTES + 10 * BLOCK_BYTES + 40
    raw[offset] ^= 0xFF
    path.write_bytes(raw)
    message = refused_start(written)
    assert path.name in message
    assert re.search(r"offset \d+", message)
    assert re.search(r"lsn \d+", message)
    assert path.read_bytes() == raw
    raw[offset] ^= 0xFF
    path.write_bytes(raw)
    written.start()
    with written.connect() as connection:
        assert connection.call("DBSIZE") == BATCHES


def test_a_segment_header_that_is_damaged(written):
    [path, *_] = segments(written)
    raw = bytearray(path.read_bytes())
    raw[3] ^= 1
    path.write_bytes(raw)
    assert path.name in refused_start(written)


def test_a_missing_first_segment(written):
    [path, *_] = segments(written)
    path.rename(path.with_suffix(".aside"))
    assert path.name in refused_start(written)


def test_a_missing_segment_in_the_middle(new_server):
    server = new_server(log_segment_bytes="1mb").start()
    with server.connect() as connection:
        connection.send(b"".join(encode("SET", f"k{number}", "x" * 10_000) for number in range(500)))
        assert [connection.read() for _ in range(500)] == [b"OK"] * 500
    server.kill()
    middle = segments(server)[2]
    middle.unlink()
    assert middle.name in refused_start(server)


def test_a_damaged_control_file(written):
    control = written.directory / "control"
    raw = bytearray(control.read_bytes())
    raw[20] ^= 1
    control.write_bytes(raw)
    assert "control" in refused_start(written)


@pytest.mark.parametrize("garbage_bytes", [1, 100, 4096, 50_000])
def test_garbage_after_the_end_is_no_record(written, garbage_bytes):
    """Recycled segments hold old bytes there, so bytes that are no part of a batch mean nothing."""
    [path, *_] = segments(written)
    offset = SEGMENT_HEADER_BYTES + end_of_log(written)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(random.Random(garbage_bytes).randbytes(garbage_bytes))
    for number in range(2):
        assert run_sheaf("check", str(written.directory)).returncode == 0
        written.start()
        with written.connect() as connection:
            assert connection.call("DBSIZE") == BATCHES + number
            assert connection.call("SET", f"after{number}", "v") == b"OK"
        written.kill()


def interrupt_last_write(server: Server, kept: str) -> bytes:
    """Lets the server write a batch of many blocks and removes all of it except the given blocks; returns the
    rest.
    """
    server.start()
    with server.connect() as connection:
        assert connection.call("SET", "small", "v") == b"OK"
        assert connection.call("SET", "torn", random.Random(1).randbytes(100_000)) == b"OK"
    server.kill()
    # The first batch is one block, the second is all the rest.
    start, end = BLOCK_BYTES, end_of_log(server)
    assert end - start > 100_000
    [path, *_] = segments(server)
    with path.open("r+b") as file:
        file.seek(SEGMENT_HEADER_BYTES + start)
        left = cut(file.read(end - start), kept)
        file.seek(SEGMENT_HEADER_BYTES + start)
        file.write(left)
    return left


def cut(whole: bytes, kept: str) -> bytes:
    """The blocks of a batch that reached the disk before a power cut; zeros in the others."""
    half = len(whole) // 2 // BLOCK_BYTES * BLOCK_BYTES
    return {
        "nothing": bytes(len(whole)),
        "the first half": whole[:half] + bytes(len(whole) - half),
        "the second half": bytes(half) + whole[half:],
        "all but the last bytes": whole[:-16] + bytes(16),
        "one block in the middle missing": whole[:half] + bytes(BLOCK_BYTES) + whole[half + BLOCK_BYTES :],
    }[kept]


@pytest.mark.parametrize(
    "kept", ["the second half", "all but the last bytes", "one block in the middle missing"]
)
def test_an_interrupted_last_write_is_cut_and_told(new_server, kept):
    """The batch was acknowledged here; it stands for one whose write a power cut interrupted."""
    server = new_server()
    left = interrupt_last_write(server, kept)
    [path, *_] = segments(server)
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0, checked.stderr
    assert "interrupted write" in checked.stdout
    assert path.read_bytes()[SEGMENT_HEADER_BYTES + BLOCK_BYTES :].startswith(left), "check changes nothing"
    before = server.log()
    server.start()
    assert "torn" in server.log()[len(before) :]
    [aside] = server.directory.glob("torn-*.bin")
    assert left.startswith(aside.read_bytes())
    with server.connect() as connection:
        assert connection.call("KEYS", "*") == [b"small"]
        assert connection.call("SET", "after", "v") == b"OK"
    assert server.stop() == 0
    checked = run_sheaf("check", str(server.directory))
    assert checked.returncode == 0
    assert "closed in order" in checked.stdout


@pytest.mark.parametrize("kept", ["nothing", "the first half"])
def test_an_interrupted_last_write_without_a_whole_record_is_cut(new_server, kept):
    """The bytes may look like those of a recycled segment; the server starts nevertheless."""
    server = new_server()
    interrupt_last_write(server, kept)
    for number in range(3):
        assert run_sheaf("check", str(server.directory)).returncode == 0
        server.start()
        with server.connect() as connection:
            assert connection.call("EXISTS", "small", "torn") == 1
            assert connection.call("DBSIZE") == 1 + number
            assert connection.call("SET", f"after{number}", "v") == b"OK"
        server.kill()


def test_a_segment_file_cut_after_the_end_still_starts(written):
    [path, *_] = segments(written)
    with path.open("r+b") as file:
        file.truncate(SEGMENT_HEADER_BYTES + end_of_log(written))
    written.start()
    with written.connect() as connection:
        assert connection.call("DBSIZE") == BATCHES
        connection.send(b"".join(encode("SET", f"more{number}", "x" * 1000) for number in range(1000)))
        assert [connection.read() for _ in range(1000)] == [b"OK"] * 1000
    written.kill()
    written.start()
    with written.connect() as connection:
        assert connection.call("DBSIZE") == BATCHES + 1000


def test_the_log_can_be_read_as_text(written):
    printed = run_sheaf("log", str(written.directory), "--key", "k1?")
    assert printed.returncode == 0, printed.stderr
    lines = [line for line in printed.stdout.splitlines() if "k1" in line]
    assert len(lines) == 10
    positions = [int(line.split()[0]) for line in lines]
    assert positions == sorted(positions)
    part = run_sheaf("log", str(written.directory), "--from", str(positions[3]), "--to", str(positions[6]), "--key", "k1?")
    assert [line for line in part.stdout.splitlines() if "k1" in line] == lines[3:7]


def test_the_log_shows_times_documents_and_its_end(new_server):
    server = new_server().start()
    with Couch(server.http_port) as couch:
        couch.ok("PUT", "/orders")
        couch.ok("PUT", "/orders/first", {"value": 1})
    server.kill()
    printed = run_sheaf("log", str(server.directory)).stdout
    assert 'create database "orders"' in printed
    put = next(line for line in printed.splitlines() if 'database "orders": put "first"' in line)
    later = run_sheaf("log", str(server.directory), "--from", put.split()[0]).stdout
    assert later.splitlines()[0] == put, "the name is that of a database made before"
    assert re.search(r"^\d+ written at \d{4}-\d\d-\d\dT[\d:.]+Z$", printed, re.MULTILINE), printed
    assert re.fullmatch(r"\d+ end of the log", printed.splitlines()[-1]), printed


def test_a_check_names_the_way_out_as_a_start_does(written):
    with segments(written)[0].open("r+b") as file:
        file.seek(SEGMENT_HEADER_BYTES + 10)
        file.write(b"damage")
    for command in (("check", str(written.directory)), ("serve", "--dir", str(written.directory), *ANY_PORTS)):
        refused = run_sheaf(*command)
        assert refused.returncode == 1 and "--force-recovery leaves out what is damaged" in refused.stderr, refused.stderr
    (written.directory / "control").unlink()
    for command in (("check", str(written.directory)), ("serve", "--dir", str(written.directory), *ANY_PORTS)):
        refused = run_sheaf(*command)
        assert refused.returncode == 1, refused.stdout
        assert "control: missing although the directory holds a log" in refused.stderr, refused.stderr


def test_check_of_a_directory_without_data(tmp_path):
    checked = run_sheaf("check", str(tmp_path))
    assert checked.returncode not in (0, 101)
    assert str(tmp_path) in checked.stderr
