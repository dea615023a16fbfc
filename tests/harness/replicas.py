"""Queries and waits that tests of leaders and replicas share."""

from harness import resp
from harness.server import Server
from harness.storm import contents
from harness.waiting import wait_until


def info(server: Server) -> dict[str, str]:
    """INFO replication, field by field."""
    with server.connect() as connection:
        lines = connection.call("INFO", "replication").decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def call(server: Server, *words):
    """Sends one command on a connection of its own; errors are values."""
    with server.connect() as connection:
        return connection.call(*words)


def error_of(answer) -> str:
    """The text of an error, empty for anything else."""
    return answer.text if isinstance(answer, resp.ErrorReply) else ""


def has_role(server: Server, role: str) -> bool:
    """Whether the server has this role, `master` or `slave`; false while the server restarts within its process."""
    try:
        return info(server)["role"] == role
    except (OSError, resp.Closed):
        return False


def is_following(replica: Server) -> bool:
    """Whether the link is up and everything that the replica knows to be committed is applied."""
    try:
        fields = info(replica)
    except (OSError, resp.Closed):
        return False
    return fields["role"] == "slave" and fields["master_link_status"] == "up"


def wait_following(replica: Server) -> None:
    """Waits until the replica follows its leader."""
    wait_until("the replica to follow", lambda: is_following(replica))


def wait_same(leader: Server, replica: Server) -> None:
    """Waits until the replica has applied everything that the leader has."""
    wait_following(replica)
    end = int(info(leader)["master_repl_offset"])
    assert call(replica, "WAITLSN", end, 60_000) == 1
    with leader.connect() as one, replica.connect() as other:
        assert contents(one) == contents(other)


def follower_of(new_server, leader: Server, port: int | None = None, **options) -> Server:
    """A replica on an empty directory that follows this leader, at `port` if it is given."""
    extra = ("--replica-of", f"127.0.0.1:{port or leader.port}", *options.pop("extra", ()))
    replica = new_server(extra=extra, **options).start()
    wait_following(replica)
    return replica
