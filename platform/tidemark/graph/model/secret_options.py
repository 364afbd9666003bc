"""Which options of databases and brokers hold secrets: definitions are stored and shown, so such values come from the environment."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(
    r"""(?ix)
    secret | token | passw | passphrase | credential | authorization
    | (?: access | account | private | api | encryption | signing | shared | master ) [-_.]? key
    | (?: ^ | [^a-z] ) (?: pass | pwd | pw | pat | sas | sig ) \d* $
    """
)
_TEXT: Final = re.compile(r"(?i)(?:passw(?:or)?d|secret|token|identified\s+by)\b")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")


def names_secret(name: str) -> bool:
    """Return whether an option's name says that its value is secret.

    >>> names_secret("sasl.password"), names_secret("fetchsize")
    (True, False)
    """
    return _NAME.search(name) is not None


def holds_secret(text: str) -> bool:
    """Return whether an option's value looks as if it holds a secret.

    >>> holds_secret("user=ada password=x"), holds_secret("10000")
    (True, False)
    """
    return _TEXT.search(text) is not None


def is_variable(variable: object) -> bool:
    """Return whether a value is the name of an environment variable, in capital letters.

    >>> is_variable("SHOP_PASSWORD"), is_variable("hunter2")
    (True, False)
    """
    return isinstance(variable, str) and _VARIABLE.fullmatch(variable) is not None
