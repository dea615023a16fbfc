"""DUMP and RESTORE. exchange.py tests the payloads of one server on the other."""

from differential.draw import INT64_MAX, Draw
from differential.families import Family
from differential.steps import Command, command, same_shape

family = Family("payload")


@family.draws("DUMP")
def dump(draw: Draw, name: str) -> Command:
    return command(name, draw.any_key(), agree=same_shape)


@family.draws("RESTORE", weight=3)
def restore(draw: Draw, name: str) -> Command:
    payload = draw.one(draw.payloads)
    if draw.chance(0.1):
        spot = draw.number(0, len(payload) - 1)
        payload = payload[:spot] + bytes([payload[spot] ^ 1 << draw.number(0, 7)]) + payload[spot + 1 :]
    if draw.chance(0.05):
        payload = payload[: draw.number(0, len(payload) - 1)]
    absolute = draw.chance(0.3)
    lifetime: object = draw.one((0, draw.future_ms() if absolute else draw.far_milliseconds()))
    if draw.chance(0.05):
        lifetime = draw.one((-1, "abc", "", INT64_MAX + 1))
    options = [
        draw.maybe(0.6, draw.case("REPLACE")),
        draw.maybe(1 if absolute else 0, draw.case("ABSTTL")),
        draw.maybe(0.1, draw.case("IDLETIME"), draw.one((0, 100, -1, "abc"))),
        draw.maybe(0.1, draw.case("FREQ"), draw.one((0, 255, 256, -1, "abc"))),
        draw.maybe(0.02, "SOON"),
    ]
    draw.random.shuffle(options)
    return command(name, draw.any_key(), lifetime, payload, *(part for option in options for part in option))
