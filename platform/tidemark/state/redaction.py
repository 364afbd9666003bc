"""Takes credentials out of what other libraries say, before it goes to messages, status files and Dagster."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "<hidden>"

# Every repetition is bounded, or begins at a fixed text: the texts of errors hold whole values, which may be long.
_USER = re.compile(r"(?P<scheme>\b[A-Za-z][\w+.-]{0,30}://)[^\s/@\"':]{1,256}:[^\s/@\"']{0,1024}@")
_QUERY = re.compile(r"(?P<address>\b[A-Za-z][\w+.-]{0,30}://[^\s?\"']{0,4096})\?[^\s\"'),]+")
_SECRET = re.compile(
    r"""(?ix)
    (?P<name>
        (?: secret | token | passw(?:or)?d | signature | authorization | credential | (?:access|account|private|api)[._-]?key )
        [\w.-]{0,60}
        | \b (?: sas | sig ) \b
    )
    (?P<sign> ["'`]? \s* (?: => | [:=] ) \s* )
    (?: "[^"]*" | '[^']*' | (?: (?: bearer | basic | sharedkey ) \s+ )? \S+ )
    """
)
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")


def redacted(text: str) -> str:
    """Return a text without what looks like a credential: of an address its user and its query, and values of secret settings.

    >>> redacted("GET https://lake.example/t?sig=abc failed; fs.s3a.secret.key=abc")
    'GET https://lake.example/t?<hidden> failed; fs.s3a.secret.key=<hidden>'
    """
    text = _USER.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _QUERY.sub(rf"\g<address>?{HIDDEN}", text)
    text = _SECRET.sub(rf"\g<name>\g<sign>{HIDDEN}", text)
    return _ACCESS_KEY.sub(HIDDEN, text)


def without_secrets(error: BaseException) -> BaseException:
    """Return an error to name as the cause of another: itself, or, where its text holds a credential, one with the rest of the text.

    The traceback of a new error is empty; that of the error which names it still leads to the place.
    """
    text = redacted(str(error))
    inner = error.__cause__ if error.__suppress_context__ else error.__cause__ or error.__context__
    if text == str(error) and (inner is None or without_secrets(inner) is inner):
        return error
    return RuntimeError(f"{type(error).__name__}: {text}")
