"""Certificates for tests of TLS, connections over it, and the flags of a server that serves it.

`sheaf certs` makes the authority and the usual certificates, and openssl the unusual ones.
"""

import os
import ssl
import subprocess
from pathlib import Path

from harness import resp
from harness.server import run_sheaf
from harness.waiting import PATIENCE_S

CLIENT = "client"


class Certificates:
    """The files of one authority, in a directory of their own."""

    def __init__(self, directory: Path, user: str = CLIENT):
        self.directory = directory
        made = run_sheaf("certs", str(directory), "--user", user)
        assert made.returncode == 0, made.stderr

    def path(self, name: str) -> str:
        """The path of one file."""
        return str(self.directory / name)

    def server_flags(self, port: int, clients: str = "yes", **settings: str) -> tuple[str, ...]:
        """The flags of a server that serves TLS on this port, and asks clients for certificates."""
        files = {"tls-cert-file": "server.crt", "tls-key-file": "server.key", "tls-ca-cert-file": "ca.crt"}
        wanted = {name: self.path(file) for name, file in files.items()} | {"tls-auth-clients": clients}
        wanted |= {name.replace("_", "-"): value for name, value in settings.items()}
        flags = [part for name, value in wanted.items() for part in (f"--{name}", value)]
        return ("--tls-port", str(port), *flags)

    def client_flags(self, name: str = CLIENT) -> tuple[str, ...]:
        """The flags of redis-cli and of the commands of sheaf."""
        shown = ("--cert", self.path(f"{name}.crt"), "--key", self.path(f"{name}.key"))
        return ("--tls", "--cacert", self.path("ca.crt"), *shown)

    def context(self, shown: str | None = CLIENT) -> ssl.SSLContext:
        """A client that trusts this authority, and shows the certificate of this name."""
        context = ssl.create_default_context(cafile=self.path("ca.crt"))
        if shown is not None:
            context.load_cert_chain(self.path(f"{shown}.crt"), self.path(f"{shown}.key"))
        return context

    def issue(self, name: str, common_name: str, days: int = 1) -> None:
        """Signs another certificate, for this machine; with `days` -1, the certificate has expired. Each of its two
        files is replaced atomically, one after the other.
        """
        extensions = "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"
        Path(self.path("extensions")).write_text(extensions)
        new = self.path(f"new-{name}")
        authority = ("-CA", self.path("ca.crt"), "-CAkey", self.path("ca.key"))
        _openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", f"{new}.ec")
        _openssl("pkcs8", "-topk8", "-nocrypt", "-in", f"{new}.ec", "-out", f"{new}.key")
        _openssl("req", "-new", "-key", f"{new}.key", "-subj", f"/CN={common_name}", "-out", f"{new}.csr")
        signed = ("-days", str(days), "-extfile", self.path("extensions"), "-out", f"{new}.crt")
        _openssl("x509", "-req", "-in", f"{new}.csr", *authority, *signed)
        os.replace(f"{new}.crt", self.path(f"{name}.crt"))
        os.replace(f"{new}.key", self.path(f"{name}.key"))


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr


class Encrypted(resp.Connection):
    """A raw RESP connection over TLS."""

    def __init__(self, port: int, context: ssl.SSLContext, host: str = "localhost"):
        super().__init__(port)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        except BaseException:
            self.socket.close()
            raise
