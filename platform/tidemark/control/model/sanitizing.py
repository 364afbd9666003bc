"""Names that come from data, such as those of splits, as text that messages and metrics can carry."""

from __future__ import annotations

from tidemark.state.encoding.envelope import sha256


def safe_label(name: str) -> str:
    """Return a name as valid text of bounded length, and another one for each name.

    >>> safe_label("trips-7"), len(safe_label("x" * 5_000))
    ('trips-7', 100)
    """
    shown = safe_text(name)
    return name if shown == name and len(name) <= 100 else f"{shown[:87]}…{sha256(name.encode('utf-8', 'surrogatepass'))[:12]}"


def safe_text(text: str) -> str:
    r"""Return a text without what no encoding knows; data may hold halves of characters.

    >>> safe_text("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode("utf-8")
