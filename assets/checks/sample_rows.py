"""A few rows as a Markdown table, for the metadata of checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.assets.values.markdown import as_plain

LIMIT = 20
_WIDEST = 80


def sample_markdown(rows: Sequence[Mapping[str, object]], limit: int = LIMIT) -> str:
    r"""Return the first rows as a Markdown table, and how many more there are.

    >>> print(sample_markdown([{"zone": 1, "note": "a|b"}, {"zone": 2, "note": None}], limit=1))
    | zone | note |
    |---|---|
    | 1 | a\|b |
    <BLANKLINE>
    … and 1 more
    """
    if not rows:
        return "no rows"
    columns = list(dict.fromkeys(name for row in rows[:limit] for name in row))
    lines = ["| " + " | ".join(_cell(name) for name in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(name)) for name in columns) + " |" for row in rows[:limit]]
    if len(rows) > limit:
        lines += ["", f"… and {len(rows) - limit} more"]
    return "\n".join(lines)


def _cell(value: object) -> str:
    text = "null" if value is None else str(value)
    text = text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
    return as_plain(text)
