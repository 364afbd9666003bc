"""Free text that users give and that is kept: reasons, users, notes, labels, names. It is visible to every reader of the store."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_plus

from tidemark.errors import DefinitionError
from tidemark.state.encoding.redaction import redacted

_LINK = re.compile(r"(?P<address>\b[A-Za-z][\w+.-]{0,30}://[^\s?\"']{0,4096})\?(?P<query>[^\s\"'),]+)")
_SECRET_NAME: Final = re.compile(
    r"""(?ix)
    secret | token | passw | passphrase | signature | credential | authorization | jwt | cookie | session | ^x-amz-
    | (?: access | account | private | api | encryption | signing | shared | master | hmac ) [-_.]? key
    | (?: ^ | [^a-z] ) (?: auth | oauth | sas | sig | pass | pwd | pat | pw | key | code ) (?: $ | [^a-z] )
    """
)
"""In the name of a link's parameter: its value is a credential. ``code`` is the one of a sign-in."""

_WORD: Final = r"(?:[A-Za-z][a-z]{0,15}|[a-z]{1,15}['-][a-z]{1,15})"
# A colon before a sentence: two plain words, of which the first is no kind of authorization.
_SENTENCE: Final = re.compile(
    rf"""(?x)
    (?<=\w) [ \t]? : (?= [ \t]+
        (?! (?i: bearer | basic | sharedkey | token | digest | apikey ) \b )
        (?P<first> {_WORD} ) ,? [ \t]+ {_WORD} (?! [\w=:/+@-] )
        (?P<rest> [^\n]* )
    )
    """
)
# A chosen password may consist of words, so a text that names one must also show a value.
_THOUGHT_UP: Final = re.compile(r"(?i)(?:passw(?:or)?ds?|passphrases?|secrets?|\b(?:pass|pwd|pw))$")
_SAYS: Final = re.compile(
    r"(?i)(?:a|an|as|ask|by|for|from|had|has|in|is|it|new|no|not|now|of|on|our|same|see|still|that|the|this|to|was|we|will|with|\w+ed)"
)
_MADE_UP: Final = re.compile(r"(?=[A-Za-z+_-]{0,99}\d)(?=[\d+_-]{0,99}[A-Za-z])[\w+=-]{10,}")


def require_no_secret(job: str | None = None, /, **texts: str) -> None:
    """Make sure that no text looks as if it held a credential; called before anything is written or begun.

    Args:
        job: the job that the texts are about, for the error.
        texts: by their purpose, such as ``why``.

    Raises:
        DefinitionError: one does, or is no text. The error names which, and nothing of a secret.

    >>> require_no_secret(why="rotated the token of the lake")
    >>> require_no_secret(why="token: renewed by ops, see https://jira.example/browse/ABC-1?focused=5")
    >>> require_no_secret("fares", why="now with password=hunter2")
    Traceback (most recent call last):
    tidemark.errors.DefinitionError: [TM100] the text of why looks as if it holds a secret, and it is kept and shown (job 'fares'). Fix: ...
    """
    for name, text in texts.items():
        if not isinstance(text, str):
            raise DefinitionError(f"{name}={text!r} is not text", fix=f"write it as text: {name}={str(text)!r}", job=job)
        plain = _SENTENCE.sub(_without_colon, _LINK.sub(_without_query, text))
        if redacted(plain) != plain:
            raise DefinitionError(
                f"the text of {name} looks as if it holds a secret, and it is kept and shown",
                fix="leave the secret out, and say where it lies, such as the name of its entry in a vault",
                job=job,
            )


def _without_query(link: re.Match[str]) -> str:
    """Return a link without its query if no parameter's name marks a secret; otherwise the link unchanged."""
    parameters = [part.partition("=") for part in re.split("[&;?#]", link["query"])]
    secret = any(_SECRET_NAME.search(unquote_plus(name)) or (not sign and _MADE_UP.search(name)) for name, sign, _ in parameters)
    return link[0] if secret else f"{link['address']} {' '.join(unquote_plus(value) for _, _, value in parameters)}"


def _without_colon(sentence: re.Match[str]) -> str:
    """Return nothing for the colon before a sentence, and the colon where what follows may hold a secret after all."""
    before = sentence.string[max(0, sentence.start() - 20) : sentence.start()]
    says = _THOUGHT_UP.search(before) is None or _SAYS.fullmatch(sentence["first"]) is not None
    return "" if says and _MADE_UP.search(sentence["rest"]) is None else sentence[0]
