"""Text of unknown origin inside Markdown: values from data must not become links, images or HTML on Dagster's pages."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"[\\`*\[\]<>|&~]")


def as_plain(text: str) -> str:
    r"""Return Markdown that shows a text as it is, on one line.

    >>> print(as_plain("![](http://x) <b>"))
    !\[\](http://x) \<b\>
    """
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.splitlines()))
