"""A real SMTP server on loopback, with encryption and log-in, and a certificate made on the spot."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "mailer", "s3cr3t-t0k3n"


@dataclass(frozen=True)
class Certificate:
    """A certificate for 127.0.0.1 and its key; who is to trust the server trusts ``file``."""

    file: str
    key: str


@dataclass
class Inbox:
    """Mails as the server took them; refuses the addresses in ``refuse``, and everything while ``away``."""

    refuse: frozenset[str] = frozenset()
    away: bool = False
    mails: list[tuple[list[str], str]] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802 - aiosmtpd looks it up by this name
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address in self.refuse:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - as above
        if self.away:
            return "451 come back later"
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append((list(envelope.rcpt_tos), content.decode()))
        self.encrypted.append(session.ssl is not None)
        return "250 taken"


def make_certificate(folder: Path) -> Certificate:
    certificate = Certificate(str(folder / "certificate.pem"), str(folder / "key.pem"))
    request = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    places = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate.key, "-out", certificate.file]
    subprocess.run(["openssl", "req", *request, *places], check=True, capture_output=True)
    return certificate


@contextmanager
def smtp_server(inbox: Inbox, certificate: Certificate | None = None) -> Iterator[int]:
    """Serve until the block ends; with a certificate only encrypted and after a log-in. Gives the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    options: dict[str, Any] = {}
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.file, certificate.key)
        options = {"tls_context": context, "require_starttls": True, "auth_required": True, "authenticator": _knows}
    controller = Controller(inbox, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield port
    finally:
        controller.stop()


def _knows(_server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, given: object) -> AuthResult:
    known = isinstance(given, LoginPassword) and (given.login, given.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=known, handled=False)
