"""Django's cache and session backends: `django_round.py URL PROTOCOL WHAT`. Run by test_django.py.

WHAT is `all` for one round of everything, `write` to write until the server stops answering and print the
answered rounds, or `read` to compare the data with the output of `write`, given on standard input.
"""

import json
import sys

from django.conf import settings


def configure(url: str, protocol: int) -> None:
    """Django with only a cache in Redis and sessions in the cache."""
    cache = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": url,
        "OPTIONS": {"protocol": protocol},
        "KEY_PREFIX": "site",
    }
    settings.configure(
        CACHES={"default": cache},
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
        SECRET_KEY="for tests only",
        USE_TZ=True,
    )
    import django

    django.setup()


def check_cache() -> None:
    """Every method of a cache."""
    from django.core.cache import cache

    cache.set("page", {"title": "T", "tags": ["a", "b"]}, timeout=300)
    assert cache.get("page") == {"title": "T", "tags": ["a", "b"]}
    assert cache.get("missing", "default") == "default"
    assert cache.add("page", "other") is False
    assert cache.add("fresh", "value", timeout=60) is True
    assert cache.touch("fresh", 120) is True
    assert cache.touch("missing", 120) is False
    assert cache.has_key("fresh")
    assert cache.get_or_set("computed", lambda: 42) == 42
    assert cache.get_or_set("computed", lambda: 0) == 42
    cache.set("visits", 1)
    assert cache.incr("visits", 4) == 5
    assert cache.decr("visits") == 4
    try:
        cache.incr("missing")
    except ValueError:
        pass
    else:
        raise AssertionError("incr of a missing key must fail")
    cache.set("forever", "v", timeout=None)
    cache.set("never", "v", timeout=0)
    assert cache.get("never") is None
    assert cache.get_many(["page", "visits", "missing"]) == {"page": cache.get("page"), "visits": 4}
    cache.delete_many(["page", "visits"])
    assert cache.delete("forever") is True
    assert cache.delete("forever") is False
    cache.set("versioned", "one", version=1)
    cache.set("versioned", "two", version=2)
    assert (cache.get("versioned", version=1), cache.get("versioned", version=2)) == ("one", "two")
    assert cache.incr_version("versioned", version=2) == 3
    assert cache.get("versioned", version=2) is None
    assert cache.get("versioned", version=3) == "two"
    assert cache.decr_version("versioned", version=3) == 2
    assert cache.get("versioned", version=2) == "two"
    assert cache.set_many({"one": 1, "two": [2]}, timeout=300) == []
    assert cache.set_many({"three": 3}, timeout=None) == []
    assert cache.get_many(["one", "two", "three"]) == {"one": 1, "two": [2], "three": 3}
    assert cache.set_many({"one": 0}, timeout=0) == []
    assert cache.get("one") is None
    cache.clear()
    assert cache.get("fresh") is None


def check_sessions() -> None:
    """A visitor who arrives, logs in, gets a new session key, and logs out."""
    from django.contrib.sessions.backends.cache import SessionStore

    visitor = SessionStore()
    visitor["cart"] = ["book"]
    visitor.set_expiry(300)
    visitor.save()
    again = SessionStore(session_key=visitor.session_key)
    assert again["cart"] == ["book"]
    again["user"] = 7
    again.cycle_key()
    again.save()
    assert not SessionStore().exists(visitor.session_key)
    assert SessionStore(session_key=again.session_key)["user"] == 7
    other = SessionStore()
    other["user"] = 8
    other.save()
    again.flush()
    assert SessionStore(session_key=other.session_key)["user"] == 8


def write_until_cut() -> None:
    """Prints `[number, session key]` after every answered round of writes, one JSON list a line."""
    from django.contrib.sessions.backends.cache import SessionStore
    from django.core.cache import cache
    from redis import ConnectionError

    visitor = SessionStore()
    number = 0
    try:
        while True:
            number += 1
            cache.set("single", number, timeout=None)
            cache.set_many({"left": number, "right": number}, timeout=600)
            cache.set(f"kept:{number}", number)
            visitor["number"] = number
            visitor.save()
            print(json.dumps([number, visitor.session_key]), flush=True)
    except ConnectionError:
        pass


def read_back() -> None:
    """All answered rounds are there; the last, unanswered round may be there in part."""
    from django.contrib.sessions.backends.cache import SessionStore
    from django.core.cache import cache

    number, session_key = json.loads(sys.stdin.readlines()[-1])
    found = cache.get_many(["single", "left", "right"])
    assert found["single"] in (number, number + 1), found
    assert found["left"] == found["right"], found
    assert found["left"] in (number, number + 1), found
    kept = [f"kept:{earlier}" for earlier in range(1, number + 1)]
    assert cache.get_many(kept) == {key: earlier for earlier, key in enumerate(kept, start=1)}
    assert SessionStore(session_key=session_key)["number"] in (number, number + 1)
    print(f"{number} rounds are there")


if __name__ == "__main__":
    configure(sys.argv[1], int(sys.argv[2]))
    match sys.argv[3]:
        case "write":
            write_until_cut()
        case "read":
            read_back()
        case _:
            check_cache()
            print("cache ok")
            check_sessions()
            print("sessions ok")
