"""Lists through redis-py."""

import pytest
import redis


def test_pushing_and_popping_at_both_ends(client):
    assert client.rpush("l", "b", "c") == 2
    assert client.lpush("l", "a") == 3
    assert client.lrange("l", 0, -1) == [b"a", b"b", b"c"]
    assert client.llen("l") == 3
    assert client.lpop("l") == b"a"
    assert client.rpop("l", 2) == [b"c", b"b"]
    assert client.exists("l") == 0
    assert client.lpop("l") is None
    assert client.lpop("l", 2) is None
    assert client.lpushx("l", "x") == 0
    assert client.rpushx("l", "x") == 0


def test_looking_and_changing_inside(client):
    client.rpush("l", *"abcde")
    assert client.lindex("l", 0) == b"a"
    assert client.lindex("l", -1) == b"e"
    assert client.lindex("l", 9) is None
    assert client.lset("l", 1, "B")
    assert client.linsert("l", "before", "c", "bc") == 6
    assert client.linsert("l", "after", "e", "f") == 7
    assert client.linsert("l", "after", "missing", "x") == -1
    assert client.lrange("l", 1, 3) == [b"B", b"bc", b"c"]
    assert client.ltrim("l", 1, -2)
    assert client.lrange("l", 0, -1) == [b"B", b"bc", b"c", b"d", b"e"]
    with pytest.raises(redis.ResponseError, match="index out of range"):
        client.lset("l", 99, "x")
    with pytest.raises(redis.ResponseError, match="no such key"):
        client.lset("missing", 0, "x")


def test_removing_and_finding_by_value(client):
    client.rpush("l", *"abacada")
    assert client.lpos("l", "a") == 0
    assert client.lpos("l", "a", rank=2) == 2
    assert client.lpos("l", "a", rank=-1) == 6
    assert client.lpos("l", "a", count=0) == [0, 2, 4, 6]
    assert client.lpos("l", "x") is None
    assert client.lrem("l", 2, "a") == 2
    assert client.lrem("l", -1, "a") == 1
    assert client.lrem("l", 0, "x") == 0
    assert client.lrange("l", 0, -1) == [b"b", b"c", b"a", b"d"]


def test_moving_between_lists(client):
    client.rpush("from", *"abcd")
    assert client.lmove("from", "to", "LEFT", "RIGHT") == b"a"
    assert client.lmove("from", "to", "RIGHT", "LEFT") == b"d"
    assert client.rpoplpush("from", "to") == b"c"
    assert client.lrange("to", 0, -1) == [b"c", b"d", b"a"]
    assert client.lmove("to", "to", "LEFT", "RIGHT") == b"c"
    assert client.lrange("to", 0, -1) == [b"d", b"a", b"c"]
    assert client.lmove("missing", "to", "LEFT", "LEFT") is None


def test_popping_from_the_first_list_that_has_something(client):
    client.rpush("second", *"abc")
    assert client.lmpop(2, "first", "second", direction="LEFT", count=2) == [b"second", [b"a", b"b"]]
    assert client.lmpop(2, "first", "second", direction="RIGHT") == [b"second", [b"c"]]
    assert client.lmpop(2, "first", "second", direction="LEFT") is None


def test_a_list_larger_than_its_compact_form(client):
    members = [b"%d" % number for number in range(5000)]
    client.rpush("l", *members)
    assert client.lrange("l", 0, -1) == members
    assert client.lindex("l", 2500) == b"2500"
    assert client.lrange("l", 2499, 2501) == [b"2499", b"2500", b"2501"]
    assert client.lrem("l", 1, "2500") == 1
    assert client.llen("l") == 4999
    assert client.unlink("l") == 1


def test_another_type_is_refused(client):
    client.set("k", "v")
    for call in (lambda: client.lpush("k", "a"), lambda: client.lrange("k", 0, -1), lambda: client.lpop("k")):
        with pytest.raises(
            redis.ResponseError, match="WRONGTYPE Operation against a key holding the wrong kind of value"
        ):
            call()
    assert client.get("k") == b"v"
