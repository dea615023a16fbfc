"""Places through redis-py."""

import pytest

PALERMO, CATANIA = (13.361389, 38.115556, "Palermo"), (15.087269, 37.502669, "Catania")


@pytest.fixture
def sicily(client):
    """Two cities."""
    assert client.geoadd("sicily", [*PALERMO, *CATANIA]) == 2
    return client


def test_distances_and_positions(sicily):
    assert round(float(sicily.geodist("sicily", "Palermo", "Catania", unit="km")), 4) == 166.2742
    assert sicily.geodist("sicily", "Palermo", "Nowhere") is None
    # Text or bytes, depending on the protocol.
    hashes = sicily.geohash("sicily", "Palermo", "Catania")
    assert [found if isinstance(found, bytes) else found.encode() for found in hashes] == [
        b"sqc8b49rny0",
        b"sqdtr74hyu0",
    ]
    [position, nowhere] = sicily.geopos("sicily", "Palermo", "Nowhere")
    assert [round(float(part), 5) for part in position] == [13.36139, 38.11556]
    assert nowhere is None


def test_searching(sicily):
    around = {"longitude": 15, "latitude": 37, "unit": "km"}
    assert sicily.geosearch("sicily", radius=200, sort="ASC", **around) == [b"Catania", b"Palermo"]
    assert sicily.geosearch("sicily", radius=100, **around) == [b"Catania"]
    assert sicily.geosearch("sicily", width=400, height=400, count=1, **around) == [b"Catania"]
    assert sicily.geosearch("sicily", member="Palermo", radius=1, unit="m") == [b"Palermo"]
    [nearest] = sicily.geosearch("sicily", radius=100, withdist=True, withcoord=True, withhash=True, **around)
    name, distance, hashed, _ = nearest
    assert (name, round(float(distance), 4), hashed) == (b"Catania", 56.4413, 3479447370796909)


def test_storing_found_places(sicily):
    found = {"longitude": 15, "latitude": 37, "unit": "km", "radius": 200}
    assert sicily.geosearchstore("near", "sicily", **found) == 2
    assert sicily.zrange("near", 0, -1) == [b"Palermo", b"Catania"]
    assert sicily.geosearchstore("far", "sicily", storedist=True, **found) == 2
    assert round(float(sicily.zscore("far", "Palermo")), 4) == 190.4424
