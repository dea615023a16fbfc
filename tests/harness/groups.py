"""Groups of servers that vote for their leader."""

from collections.abc import Callable

from harness import resp
from harness.replicas import call
from harness.resp import UNREACHABLE
from harness.server import Server, free_port
from harness.waiting import wait_until

NAME = "shop"


def member(new_server: Callable[..., Server], join: Server | None = None, **options) -> Server:
    """A server that founds a group, or joins through `join`; not started. The server keeps its port."""
    extra = (*membership(join), *options.pop("extra", ()))
    return new_server(port=free_port(), extra=extra, **options)


def membership(join: Server | None = None) -> tuple[str, ...]:
    """The options of a founder, or of a server that joins."""
    return ("--group", NAME, *(("--join", f"{join.host}:{join.port}") if join else ()))


def group_of(new_server: Callable[..., Server], count: int = 3, **options) -> list[Server]:
    """Started servers, all of them voters that know of each other. The first one leads at first."""
    first = member(new_server, **options).start()
    wait_leader([first])
    others = [member(new_server, first, **options).start() for _ in range(count - 1)]
    servers = [first, *others]
    settle(servers, count)
    return servers


def fields(server: Server, *words) -> dict[str, object]:
    """A reply of names and values."""
    return _named(_answer(server, *words))


def members(server: Server) -> list[dict[str, object]]:
    """GROUP MEMBERS."""
    return [_named(row) for row in _answer(server, "GROUP", "MEMBERS")]


def _named(row: list) -> dict[str, object]:
    return {name.decode(): value for name, value in zip(row[::2], row[1::2], strict=True)}


def _answer(server: Server, *words) -> list:
    answer = call(server, *words)
    if isinstance(answer, resp.ErrorReply):
        raise resp.Refused(answer.text)
    return answer


def accepts_writes(server: Server) -> bool:
    """Whether the server accepts a write now."""
    try:
        return call(server, "SET", "a:probe", "1") == b"OK"
    except UNREACHABLE:
        return False


def wait_leader(servers: list[Server]) -> Server:
    """The server that accepts writes."""
    return wait_until("a leader", lambda: next((one for one in servers if accepts_writes(one)), None))


def wait_voters(servers: list[Server], count: int) -> None:
    """Waits until each of these servers counts `count` voters: a follower counts only committed voters."""
    wait_until(f"{count} voters", lambda: all(fields(one, "GROUP", "INFO")["voters"] == count for one in servers))


def settle(servers: list[Server], count: int) -> None:
    """Waits until all servers know that the group has `count` voters. Without this wait, only the leader (the
    first server) may know that the last change of members is committed. If the leader then dies, the others may
    find no majority.
    """
    wait_voters(servers, count)
    keys = call(servers[0], "DBSIZE")
    for words, expected in ((("SET", "settled", "1"), keys + 1), (("DEL", "settled"), keys)):
        assert not isinstance(call(servers[0], *words), resp.ErrorReply)
        for server in servers:
            wait_until("it to have it", lambda one=server, size=expected: call(one, "DBSIZE") == size)


def others(servers: list[Server], leader: Server) -> list[Server]:
    """All servers but the leader."""
    return [one for one in servers if one is not leader]
