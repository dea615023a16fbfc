"""The oracle itself: it accepts every prefix that holds all acknowledged writes, and nothing else."""

import pytest

from harness.oracle import Operation, Oracle, Workload, newest_mark, value_of


def put(number: int, key: bytes, value: bytes) -> Operation:
    def apply(state):
        state[key] = value
        return b"OK"

    return Operation(number, b"", apply)


@pytest.fixture
def oracle() -> Oracle:
    """Three writes, of which the first is acknowledged."""
    oracle = Oracle("writer")
    for operation in (put(1, b"a", b"1"), put(2, b"b", b"2"), put(3, b"c", b"3")):
        oracle.sent(operation)
    oracle.answered(b"OK")
    return oracle


@pytest.mark.parametrize(
    ("found", "survivors"),
    [({b"a": b"1"}, 0), ({b"a": b"1", b"b": b"2"}, 1), ({b"a": b"1", b"b": b"2", b"c": b"3"}, 2)],
)
def test_every_prefix_from_the_acknowledged_on_is_right(oracle, found, survivors):
    assert oracle.recovered(found) == survivors
    assert oracle.number == 1 + survivors
    assert oracle.state == found


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({}, id="acknowledged and lost"),
        pytest.param({b"a": b"1", b"c": b"3"}, id="a hole"),
        pytest.param({b"a": b"1", b"d": b"4"}, id="a phantom"),
        pytest.param({b"a": b"1x"}, id="a torn value"),
        pytest.param({b"b": b"2"}, id="lost before a survivor"),
    ],
)
def test_everything_else_is_wrong(oracle, found):
    with pytest.raises(AssertionError, match="no prefix of what was sent"):
        oracle.recovered(found)


def test_a_wrong_reply_is_noticed_at_once(oracle):
    with pytest.raises(AssertionError, match="was answered"):
        oracle.answered(b"QUEUED")


def test_refused_writes_never_happened(oracle):
    oracle.refused()
    assert oracle.recovered({b"a": b"1", b"c": b"3"}) == 1


def test_half_an_mset_is_wrong():
    workload, oracle = Workload(1), Oracle("writer")
    operation = next(found for found in iter(workload.next, None) if b"MSET" in found.raw[:20])
    oracle.sent(operation)
    whole: dict[bytes, bytes] = {}
    operation.apply(whole)
    half = dict(list(whole.items())[:2])
    with pytest.raises(AssertionError):
        oracle.recovered(half)
    assert oracle.recovered(whole) == 1


def test_values_name_their_writer():
    assert newest_mark(value_of(77, 1000)) == 77
    assert newest_mark(value_of(77, 1000) + value_of(99, 20) + value_of(1234, 20)) == 1234
