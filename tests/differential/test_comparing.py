"""The differential test itself: the differences that it accepts and those that it must not, and that failures
are shrunk.
"""

from pathlib import Path

import pytest

from differential import differences, sequence, steps, table
from differential.families import all_families
from differential.pair import Judge, Pair
from differential.peers import PEERS, REDIS_7_0, REDIS_8_2, VALKEY_9_1
from differential.shrink import shrink
from differential.steps import command


def bulk(*texts: bytes, kind: bytes = b"*"):
    return kind, tuple((b"$", text) for text in texts)


@pytest.mark.parametrize(
    ("agree", "redis", "sheaf", "right"),
    [
        (steps.in_any_order, bulk(b"a", b"b"), bulk(b"b", b"a"), True),
        (steps.in_any_order, bulk(b"a", b"b"), bulk(b"b", b"b"), False),
        (steps.in_any_order, bulk(b"a"), bulk(b"a", kind=b"~"), False),
        (steps.pairs_in_any_order, bulk(b"f", b"1", b"g", b"2"), bulk(b"g", b"2", b"f", b"1"), True),
        (steps.pairs_in_any_order, bulk(b"f", b"1", b"g", b"2"), bulk(b"g", b"1", b"f", b"2"), False),
        (steps.within(5), (b":", b"100"), (b":", b"97"), True),
        (steps.within(5), (b":", b"100"), (b":", b"90"), False),
        (steps.within(5), (b":", b"1"), (b":", b"-1"), False),
        (steps.whole_scan, (b"*", ((b"$", b"0"), bulk(b"a", b"b"))), (b"*", ((b"$", b"0"), bulk(b"b", b"a"))), True),
        (steps.whole_scan, (b"*", ((b"$", b"0"), bulk(b"a", b"b"))), (b"*", ((b"$", b"7"), bulk(b"b", b"a"))), False),
        (steps.exactly, (b"$", b"1"), (b":", b"1"), False),
    ],
)
def test_agreeing_replies(agree, redis, sheaf, right):
    assert agree(redis, sheaf, []) is right


@pytest.mark.parametrize(
    ("sheaf", "right"),
    [
        (bulk(b"b", b"c"), True),
        (bulk(b"b", b"b"), False),
        (bulk(b"b"), False),
        (bulk(b"b", b"x"), False),
        ((b"-", b"ERR"), False),
    ],
)
def test_random_elements_come_from_the_collection(sheaf, right):
    assert steps.drawn(distinct=True)(bulk(b"a", b"b"), sheaf, [bulk(b"a", b"b", b"c")]) is right


@pytest.mark.parametrize(("sheaf", "right"), [(bulk(b"b", b"a"), True), (bulk(b"a", b"x"), False)])
def test_replies_of_a_transaction_are_judged_one_by_one(sheaf, right):
    judge = Judge(REDIS_7_0)
    queued = (b"+", b"QUEUED")
    assert judge.agree(command("MULTI"), (b"+", b"OK"), (b"+", b"OK"), [])
    assert judge.agree(command("PING", "x"), queued, queued, [])
    assert judge.agree(command("SMEMBERS", "s", agree=steps.in_any_order), queued, queued, [])
    replies = [(b"*", ((b"$", b"x"), members)) for members in (bulk(b"a", b"b"), sheaf)]
    assert judge.agree(command("EXEC"), *replies, []) is right


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.18, b"5.18"),
        (0.1 + 0.2, b"0.30000000000000004"),
        (-1e-5, b"-0.00001"),
        (1e-9, b"1e-9"),
        (1.5e300, b"1.5e+300"),
        (3.0e10, b"30000000000"),
        (1e17, b"100000000000000000"),
        (float(1 << 60), b"1152921504606846976"),
        (float((1 << 62) + 1024), b"4611686018427389000"),
        (-0.0, b"-0"),
    ],
)
def test_doubles_in_their_shortest_form(value, text):
    assert differences.shortest(value) == text


def test_a_difference_lets_nothing_else_through():
    score, wrong = (b"$", b"5.1799999999999997"), (b"$", b"5.19")
    assert differences.expected(command("ZSCORE", "k", "m"), score, wrong, REDIS_7_0) == (b"$", b"5.18")
    assert differences.expected(command("GET", "k"), score, (b"$", b"5.18"), REDIS_7_0) == score
    long, short = (b"$", b"48.845325090632556"), (b"$", b"48.84532509063256")
    assert differences.expected(command("ZSCORE", "k", "m"), long, short, REDIS_8_2) == short
    assert differences.expected(command("ZSCORE", "k", "m"), long, (b"$", b"48.84532509063255"), REDIS_8_2) == long
    assert differences.expected(command("GET", "k"), long, short, REDIS_8_2) == long
    far_off = (b"$", b"1.5"), (b"$", b"1.4")
    assert differences.expected(command("INCRBYFLOAT", "k", "1"), *far_off, REDIS_7_0) == far_off[0]
    expired, wrong = command("GETEX", "k", "EX", "-1"), (b"-", b"ERR invalid expire time in 'getex' command")
    assert differences.expected(expired, wrong, (b"_", b""), VALKEY_9_1) == (b"_", b"")
    assert differences.expected(expired, wrong, (b"$", b"v"), VALKEY_9_1) == wrong


@pytest.mark.parametrize(
    ("places", "shortest", "right"),
    [
        (b"13.36138933897018433", b"13.361389338970184", True),
        (b"0.00000126736058093", b"1.2673605809254695e-6", True),
        (b"180", b"180", True),
        (b"0.00000126736058094", b"1.2673605809254695e-6", False),
        (b"13.36138933897018433", b"13.3613893389701840", False),
    ],
)
def test_coordinates_are_the_same_to_17_places(places, shortest, right):
    theirs, ours = (bulk(text, text) for text in (places, shortest))
    allowed = differences.expected(command("GEOPOS", "g", "m"), theirs, ours, VALKEY_9_1)
    assert (allowed == ours) is right


def test_a_difference_is_allowed_beside_the_peers_of_the_table_only():
    score, shorter = (b"$", b"5.1799999999999997"), (b"$", b"5.18")
    asked = command("ZSCORE", "k", "m")
    assert differences.expected(asked, score, shorter, REDIS_7_0) == shorter
    assert differences.expected(asked, score, shorter, REDIS_8_2) == score


def test_every_difference_is_a_row_of_the_table():
    named = {row.name for row in table.rows()}
    assert [difference.name for difference in differences.DIFFERENCES if difference.name not in named] == []
    assert table.strangers() == []


def test_the_gate_knows_the_peers():
    gate = (Path(__file__).resolve().parents[2] / "test").read_text()
    assert f"PEERS = {tuple(peer.name for peer in PEERS)}".replace("'", '"') in gate


def test_a_seed_gives_the_same_steps_again():
    families = all_families()
    available = frozenset(drawable.name for family in families for drawable in family.drawables)

    def drawn_steps(seed: str) -> list[str]:
        found = sequence.steps_of_round(families, available, [b"payload"], seed, "everything", 2000)
        return [str(part) for step in found for part in step.commands]

    assert drawn_steps("1/everything") == drawn_steps("1/everything")
    assert drawn_steps("1/everything") != drawn_steps("2/everything")


def test_a_failure_shrinks_to_its_minimum():
    parts = list(range(1000))
    assert shrink(parts, lambda some: {17, 400, 999} <= set(some), budget_s=60) == [17, 400, 999]
    assert shrink(parts, lambda some: 999 in some, budget_s=60) == [999]


def test_shrinking_ends_when_time_is_up():
    assert shrink(list(range(1000)), lambda some: True, budget_s=0) == list(range(1000))


def test_times_to_live_count_only_if_both_were_asked_in_time(monkeypatch):
    clock = iter([0.0, 0.1, 10.0, 10.9])
    monkeypatch.setattr("differential.pair.time.monotonic", lambda: next(clock))
    pair = Pair(None, None, 2)
    monkeypatch.setattr(pair, "_pipeline", lambda _steps, _positions: None)
    assert pair.run([steps.step(command("PING"))]) is None and not pair.was_delayed()
    assert pair.run([steps.step(command("PING"))]) is None and pair.was_delayed()
