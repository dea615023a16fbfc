"""Bitmaps and HyperLogLogs through redis-py."""


def test_bits(client):
    assert client.setbit("b", 7, 1) == 0
    assert client.setbit("b", 7, 1) == 1
    assert client.getbit("b", 7) == 1
    assert client.getbit("b", 1000) == 0
    client.setbit("b", 100, 1)
    assert client.bitcount("b") == 2
    assert client.bitcount("b", 0, 0) == 1
    assert client.bitcount("b", 8, 100, "BIT") == 1
    assert client.bitpos("b", 1) == 7
    assert client.bitpos("b", 0) == 0
    client.setbit("c", 7, 1)
    assert client.bitop("AND", "both", "b", "c") == 13
    assert client.bitcount("both") == 1
    assert client.bitop("NOT", "inverse", "c") == 1
    assert client.get("inverse") == b"\xfe"


def test_fields_of_bits(client):
    fields = client.bitfield("b").set("u8", 0, 255).incrby("u8", 0, 10).get("u4", 4)
    assert fields.execute() == [0, 9, 9]
    assert client.bitfield("b", default_overflow="SAT").incrby("u8", 0, 1000).execute() == [255]
    assert client.bitfield("b", default_overflow="FAIL").incrby("u8", 0, 1).execute() == [None]
    assert client.bitfield_ro("b", "u8", 0) == [255]


def test_counting_distinct_elements(client):
    assert client.pfadd("a", *range(1000)) == 1
    assert client.pfadd("a", *range(1000)) == 0
    assert 980 <= client.pfcount("a") <= 1020
    client.pfadd("b", *range(500, 1500))
    assert 1460 <= client.pfcount("a", "b") <= 1540
    assert client.pfmerge("c", "a", "b")
    assert client.pfcount("c") == client.pfcount("a", "b")
    assert client.pfcount("missing") == 0
