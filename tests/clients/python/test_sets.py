"""Sets through redis-py."""


def test_members_come_and_go(client):
    assert client.sadd("s", "a", "b", "a") == 2
    assert client.sadd("s", "b", "c") == 1
    assert client.scard("s") == 3
    assert set(client.smembers("s")) == {b"a", b"b", b"c"}
    assert client.sismember("s", "a") == 1
    assert client.sismember("s", "x") == 0
    assert client.smismember("s", "a", "x", "c") == [1, 0, 1]
    assert client.srem("s", "a", "x") == 1
    assert client.smove("s", "t", "b")
    assert not client.smove("s", "t", "b")
    assert set(client.smembers("t")) == {b"b"}
    assert client.srem("s", "c") == 1
    assert client.exists("s") == 0


def test_combining(client):
    client.sadd("a", 1, 2, 3, 4)
    client.sadd("b", 3, 4, 5)
    assert set(client.sinter("a", "b")) == {b"3", b"4"}
    assert set(client.sunion("a", "b")) == {b"1", b"2", b"3", b"4", b"5"}
    assert set(client.sdiff("a", "b")) == {b"1", b"2"}
    assert client.sintercard(2, ["a", "b"]) == 2
    assert client.sintercard(2, ["a", "b"], limit=1) == 1
    assert client.sinterstore("i", "a", "b") == 2
    assert client.sunionstore("u", "a", "b") == 5
    assert client.sdiffstore("d", "a", "b") == 2
    assert set(client.smembers("d")) == {b"1", b"2"}
    assert client.sinterstore("d", "a", "missing") == 0
    assert client.exists("d") == 0


def test_drawing_by_chance(client):
    names = {b"%d" % number for number in range(50)}
    client.sadd("s", *names)
    assert client.srandmember("s") in names
    assert len(set(client.srandmember("s", 10))) == 10
    assert len(client.srandmember("s", -100)) == 100
    popped = {client.spop("s"), *client.spop("s", 9)}
    assert len(popped) == 10
    assert popped <= names
    assert set(client.smembers("s")) == names - popped
    assert client.spop("missing") is None


def test_a_scan_finds_every_member(client):
    names = {b"member:%d" % number for number in range(3000)}
    client.sadd("s", *names)
    assert set(client.sscan_iter("s", count=100)) == names
    assert set(client.sscan_iter("s", match="member:1?")) == {b"member:%d" % number for number in range(10, 20)}


def test_encodings(client):
    client.sadd("ints", 1, 2, 3)
    assert client.object("encoding", "ints") == b"intset"
    client.sadd("many", *range(600))
    assert client.object("encoding", "many") == b"hashtable"
