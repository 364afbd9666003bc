"""Removes credentials from other libraries' texts, before they go to messages, status files and Dagster."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "<hidden>"

# Every repetition is bounded, or begins at a fixed text: the texts of errors hold whole values, which may be long.
_USER = re.compile(r"(?P<scheme>\b[A-Za-z][\w+.-]{0,30}://)[^\s/@\"':]{0,256}:[^\s/\"']{0,1024}@")
# A name alone is a container in abfss://box@acme, and often a token in https://token@host.
_LONE_USER = re.compile(r"(?i)(?P<scheme>\bhttps?://)[^\s/@\"':<]{1,1024}@")
_QUERY = re.compile(r"(?P<address>\b[A-Za-z][\w+.-]{0,30}://[^\s?\"']{0,4096})\?[^\s\"'),]+")
_WEBHOOK = re.compile(
    r"(?i)(?P<address>https?://(?:hooks\.slack\.com/[a-z]{1,20}|[\w.-]{0,100}webhook\.office\.com|discord(?:app)?\.com/api/webhooks)/)"
    r"[^\s\"'),]+"
)
# Hidden already; quoted; quoted within quotes; one word, with the scheme before it.
_VALUE = rf"""(?:
    {HIDDEN}
    | "[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*' | \\{{1,3}}"[^"\\]{{0,1024}}\\{{1,3}}"
    | (?: (?: bearer | basic | sharedkey | token | digest | apikey ) \s+ )? \S+
)"""
_SECRET = re.compile(
    rf"""(?isx)
    (?P<name>
        (?: secret | token | passw(?:or)?d | passphrase | signature | authorization | credential
          | (?:access|account|private|api|encryption|signing|shared|master|hmac)[._\ -]?key )
        [\w.-]{{0,60}}
        | \b (?: sas | sig ) \b
        | [_.-] (?: pass | pwd | pat | pw ) \d{{0,3}} (?![\w.-])
    )
    (?P<sign> \\{{0,3}} ["'`]? \s* (?: => | [:=] ) \s* )
    {_VALUE}
    """
)
# These words are also said of other things ("second pass: 3 rows"), so alone they need the look of a setting.
_SHORT = re.compile(
    rf"""(?isx)
    (?P<name> (?: (?<![\w.-]) | (?<=-D) ) (?: pass | pwd | pat | pw ) \d{{0,3}} )
    (?P<sign> \\{{0,3}} ["'`] \s* (?: => | [:=] ) \s* | \s* (?: => | = ) \s* )
    {_VALUE}
    """
)
# A line of a settings file: the password is all the rest of it, but for a setting after it.
_LINE = re.compile(
    r"(?im)^(?P<name>[ \t]{0,40}[\w.-]{0,60}?passw(?:or)?d[\w.-]{0,60}[ \t]{0,10}=[ \t]{0,10})"
    rf"(?!{HIDDEN})[^\s\"',;](?:(?![ \t][\w.-]{{1,80}}[ \t]{{0,10}}[:=])[^\n,;])*"
)
_KEY_BLOCK = re.compile(r"(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)")
_BY_LOOK = re.compile(
    r"""(?x)
    \b (?: (?:AKIA|ASIA)[0-9A-Z]{16}                       # Amazon
        | xox[a-z]-[\w-]{6,1024} | xapp-[\w-]{6,1024}       # Slack
        | gh[a-z]_[A-Za-z0-9]{16,1024} | github_pat_\w{16,1024} | glpat-[\w-]{16,1024}
        | dapi[0-9a-f]{32}                                  # Databricks
        | eyJ[\w-]{8,4096}\.eyJ[\w-]{8,8192}\.[\w-]{0,4096} # a JSON web token
    ) (?![A-Za-z0-9])
    """
)


def redacted(text: str) -> str:
    """Return a text without what looks like a credential: of an address its user and its query, and values of secret settings.

    >>> redacted("GET https://lake.example/t?sig=abc failed; fs.s3a.secret.key=abc")
    'GET https://lake.example/t?<hidden> failed; fs.s3a.secret.key=<hidden>'
    """
    text = _KEY_BLOCK.sub(HIDDEN, text)
    text = _LONE_USER.sub(rf"\g<scheme>{HIDDEN}@", _USER.sub(rf"\g<scheme>{HIDDEN}@", text))
    text = _WEBHOOK.sub(rf"\g<address>{HIDDEN}", _QUERY.sub(rf"\g<address>?{HIDDEN}", text))
    text = _LINE.sub(rf"\g<name>{HIDDEN}", text)
    text = _SECRET.sub(rf"\g<name>\g<sign>{HIDDEN}", text)
    text = _SHORT.sub(rf"\g<name>\g<sign>{HIDDEN}", text)
    return _BY_LOOK.sub(HIDDEN, text)


def without_secrets(error: BaseException) -> BaseException:
    """Return an error to name as the cause of another: itself, or, where its text holds a credential, one with the rest of the text.

    The traceback of a new error is empty; that of the error which names it still leads to the place.
    """
    text = redacted(str(error))
    inner = error.__cause__ if error.__suppress_context__ else error.__cause__ or error.__context__
    if text == str(error) and (inner is None or without_secrets(inner) is inner):
        return error
    return RuntimeError(f"{type(error).__name__}: {text}")
