"""Refuses requests that a browser was tricked into: those for a host that the server does not have, and those of other servers' pages.

A name that an attacker's DNS resolves to loopback ("DNS rebinding") arrives in the ``Host`` header, so only known hosts are answered. A
form or a script of another page sends its ``Origin``, which must be this server. Neither replaces tokens: without one nothing is changed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from tidemark.errors import DefinitionError, ForeignRequestError

LOCALHOST = "localhost"


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can only be reached from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("db.example")
    (True, True, True, False, False)
    """
    address = _address(host)
    return address.is_loopback if address is not None else host.lower() == LOCALHOST


class Guard:
    """Knows the hosts by which the server may be addressed: ``localhost``, addresses, and names that are given.

    An address in a ``Host`` header was typed as such; only a name can be made to resolve to another machine.

    Args:
        names: further names of the server, such as that of a proxy.

    Raises:
        DefinitionError: one is not a name or an address.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {LOCALHOST, *(name.lower() for name in names)}
        for name in self._names:
            if not name or set(name) & set("/:@?# "):
                raise DefinitionError(
                    f"{name!r} is not the name of a host", fix="give names such as jobs.example.com, without port or scheme"
                )

    def check(self, host: str | None, origin: str | None) -> None:
        """Raise unless a request may be answered.

        Args:
            host: its ``Host`` header.
            origin: its ``Origin`` header, None without one.

        Raises:
            ForeignRequestError: the host is not known, or the origin is another server.
        """
        named = _host_of(f"//{host}") if host else None
        if named is None or not (named in self._names or _address(named) is not None):
            raise ForeignRequestError(
                f"the server has no host {host!r}", fix="address it as localhost, or start it with --host-name and that name"
            )
        if origin is not None and (not host or _server_of(origin) != host.lower()):
            raise ForeignRequestError(
                f"the request was sent by a page of {origin!r}, which is another server",
                fix="send it from the server's own page, or a program",
            )


def _host_of(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _server_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
