"""Makes names that come from data, such as those of splits, safe for messages and metrics."""

from __future__ import annotations

from tidemark.state.encoding.envelope import sha256


def safe_label(name: str) -> str:
    """Return a name as valid text of bounded length, distinct for each name.

    >>> safe_label("trips-7"), len(safe_label("x" * 5_000))
    ('trips-7', 100)
    """
    shown = safe_text(name)
    return name if shown == name and len(name) <= 100 else f"{shown[:87]}…{sha256(name.encode('utf-8', 'surrogatepass'))[:12]}"


def safe_text(text: str) -> str:
    r"""Return a text with lone surrogates replaced, which no encoding accepts and data may hold.

    >>> safe_text("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode("utf-8")
