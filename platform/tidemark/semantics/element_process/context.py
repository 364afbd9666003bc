"""The context of a function over elements without keys."""

from __future__ import annotations

from typing import Any, NoReturn

from tidemark.errors import UserCodeError
from tidemark.semantics.keyed_process.context import ProcessContext


class ElementContext(ProcessContext):
    """The context of a call for one element: its time, the watermark, side outputs, and the broadcast map. State and timers need a key.

    ``current_watermark()`` is the one that the epoch began with, by which elements are late.
    """

    @property
    def state(self) -> Any:  # noqa: ANN401  # there is none
        """Raise an error: state belongs to a key."""
        raise _needs_key("state")

    @property
    def current_key(self) -> NoReturn:
        """Raise an error: the stream has no key."""
        raise _needs_key("current key")

    def timer_service(self) -> NoReturn:
        """Raise an error: timers belong to a key."""
        raise _needs_key("timers")


def _needs_key(what: str) -> UserCodeError:
    return UserCodeError(f"a function over a stream without keys has no {what}", fix="key the stream: .key_by('id').process(...)")
