"""Checks of what is declared of a database: its address and options hold no secret, since definitions are stored and shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.secret_options import holds_secret, is_variable, names_secret

_USER_IN_ADDRESS: Final = re.compile(r"//[^/?;]*@|:[^:/@;?]+/[^@;?]*@")
"""A user before the host; with the password in Oracle's way, ``scott/tiger@host``."""

_PARAMETER: Final = re.compile(r"[^?;&(),=]+(?==)")
_OWN_OPTIONS: Final[Mapping[str, str]] = {
    "url": "the first argument",
    "dbtable": "the second argument",
    "query": "the second argument",
    "driver": "driver=",
    "user": "user=, or options_env={'user': 'NAME'}",
    "password": "password_env='NAME', the name of an environment variable",
}


def check_address(url: object, place: str) -> None:
    """Check the address of a database.

    Raises:
        DefinitionError: it is no address of JDBC, or it holds a user or a password, which the message does not repeat.

    >>> check_address("jdbc:postgresql://db/shop?ssl=true", "")
    >>> check_address("jdbc:postgresql://db/shop?password=hunter2", "")
    Traceback (most recent call last):
    tidemark.errors.DefinitionError: [TM100] the url of jdbc_table holds a user or a password, and it is kept and shown. Fix: ...
    """
    text = url if isinstance(url, str) else ""
    plain = unquote(text)
    names = [name.rsplit(":", 1)[-1] for name in _PARAMETER.findall(plain)]
    if _USER_IN_ADDRESS.search(plain) or any(names_secret(name.strip()) for name in names):
        raise DefinitionError(
            "the url of jdbc_table holds a user or a password, and it is kept and shown",
            fix="leave them out, and write user='reader', password_env='SHOP_PASSWORD', the name of an environment variable",
            place=place,
        )
    if not text.strip().lower().startswith("jdbc:"):
        raise DefinitionError(
            f"jdbc_table(url={shortened(repr(url))}) is no address of JDBC",
            fix="write jdbc:<database>:..., such as 'jdbc:postgresql://db/shop'",
            place=place,
        )


def check_name(argument: str, value: object, fix: str, place: str) -> None:
    """Check a text that names something.

    Raises:
        DefinitionError: it is empty, or no text.
    """
    if not isinstance(value, str) or not value.strip():
        raise DefinitionError(f"jdbc_table({argument}={shortened(repr(value))}) is no name", fix=fix, place=place)


def plain_options(options: object, place: str) -> dict[str, str]:
    """Return options as texts.

    Raises:
        DefinitionError: one has an argument of its own, or looks as if it holds a secret.
    """
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise DefinitionError("options= of jdbc_table is no mapping of options", fix="write options={'fetchsize': 10_000}", place=place)
    found = {}
    for name, value in options.items():
        _refuse_own(name, place)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if names_secret(name) or holds_secret(text):
            raise DefinitionError(
                f"the option {name!r} of jdbc_table looks as if it holds a secret, and it is kept and shown",
                fix=f"write options_env={{{name!r}: 'NAME'}}, with the name of the environment variable that holds it",
                place=place,
            )
        found[name] = text
    return found


def named_variables(named: object, place: str) -> dict[str, str]:
    """Return the environment variables that hold options.

    Raises:
        DefinitionError: not such names. What is given may be a secret, and the message does not repeat it.
    """
    fix = "give each option the name of an environment variable in capital letters, which holds its value"
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise DefinitionError("options_env= of jdbc_table is no mapping of options", fix=fix, place=place)
    for name, variable in named.items():
        if name.lower() != "user":
            _refuse_own(name, place)
        if not is_variable(variable):
            raise DefinitionError(f"options_env= of jdbc_table names no environment variable for {name!r}", fix=fix, place=place)
    return dict(named)


def password_variable(variable: object, place: str) -> dict[str, str]:
    """Return the environment variable that holds the password, by its option; empty without one.

    Raises:
        DefinitionError: no such name. What is given may be the password, and the message does not repeat it.
    """
    if variable is None:
        return {}
    if not is_variable(variable):
        raise DefinitionError(
            "password_env= of jdbc_table is no name of an environment variable",
            fix="write password_env='SHOP_PASSWORD', and set that variable to the password where the job runs",
            place=place,
        )
    return {"password": str(variable)}


def _refuse_own(name: str, place: str) -> None:
    instead = _OWN_OPTIONS.get(name.lower())
    if instead is not None:
        raise DefinitionError(f"jdbc_table takes no option {name!r}", fix=f"give it as {instead}", place=place)
