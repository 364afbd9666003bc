"""Free text that people give and that is kept: what for, who, notes, labels, names. It is shown to all who read the store."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.state.encoding.redaction import redacted


def require_no_secret(job: str | None = None, /, **texts: str) -> None:
    """Make sure that no text looks as if it held a credential; called before anything is written or begun.

    Args:
        job: the job that the texts are about, for the error.
        texts: by what they are, such as ``why``.

    Raises:
        DefinitionError: one does. The error names which, and nothing of it.

    >>> require_no_secret(why="rotated the token of the lake")
    >>> require_no_secret("fares", why="now with password=hunter2")
    Traceback (most recent call last):
    tidemark.errors.DefinitionError: [TM100] the text of why looks as if it holds a secret, and it is kept and shown (job 'fares'). Fix: ...
    """
    for name, text in texts.items():
        if redacted(text) != text:
            raise DefinitionError(
                f"the text of {name} looks as if it holds a secret, and it is kept and shown",
                fix="leave the secret out, and say where it lies, such as the name of its entry in a vault",
                job=job,
            )
