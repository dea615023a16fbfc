"""The timeout of redis-py's clients in tests."""

import functools

import redis

from harness.waiting import PATIENCE_S


def be_patient() -> None:
    """Makes redis-py wait for each answer as long as the tests do, unless a client is given another timeout."""
    for made in (redis.Redis, redis.connection.AbstractConnection):
        made.__init__ = _with_timeout(made.__init__)


def _with_timeout(make):
    @functools.wraps(make)
    def make_patient(self, *args, **options):
        make(self, *args, **({"socket_timeout": PATIENCE_S} | options))

    return make_patient
