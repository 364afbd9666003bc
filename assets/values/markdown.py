"""Escapes text of unknown origin in Markdown: values from data must not become links, images or HTML in Dagster's UI."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"[\\`*\[\]<>|&~]")


def as_plain(text: str) -> str:
    r"""Return Markdown that shows a text literally, on one line.

    >>> print(as_plain("![](http://x) <b>"))
    !\[\](http://x) \<b\>
    """
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.splitlines()))
