"""Checks of what is declared of a database: its address and options hold no secret, since definitions are stored and shown."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.secret_options import OptionChecks, is_variable, names_secret

_USER_IN_ADDRESS: Final = re.compile(r"//[^/?;]*@|:[^:/@;?]+/[^@;?]*@")
"""A user before the host; with the password in Oracle's way, ``scott/tiger@host``."""

_PARAMETER: Final = re.compile(r"[^?;&(),=]+(?==)")
_OWN_OPTIONS: Final = {
    "url": "the first argument",
    "dbtable": "the second argument",
    "query": "the second argument",
    "driver": "driver=",
    "user": "user=, or options_env={'user': 'NAME'}",
    "password": "password_env='NAME', the name of an environment variable",
}
OPTIONS: Final = OptionChecks("jdbc_table", _OWN_OPTIONS, "{'fetchsize': 10_000}")
"""Of what goes to the database's driver."""


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
