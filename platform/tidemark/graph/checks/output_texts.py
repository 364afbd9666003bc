"""The description of an output and of its columns, for the people who read its place."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.checks.output_columns import output_schema
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.nodes import Output

ColumnTexts = Mapping[str, str]
"""Descriptions of columns, by name."""

MOST: Final = 4_000
"""Greatest number of characters of a description; Delta's writer keeps no more."""


def described(output: Output, description: str, columns: ColumnTexts | None) -> Output:
    """Return an output with descriptions. They change neither its rows nor the job's code version.

    Args:
        output: the output.
        description: what its rows are.
        columns: what its columns are, by name; those that the sink adds are among them.

    Raises:
        DefinitionError: a description is no text, or too long.
        ColumnError: the output has no such column.
    """
    if not isinstance(description, str):
        raise DefinitionError(f"description={shortened(repr(description))} is no text", fix="write a text", place=output.place)
    given: object = columns if columns is not None else {}
    if not isinstance(given, Mapping) or not all(isinstance(part, str) for pair in given.items() for part in pair):
        raise DefinitionError(
            f"columns={shortened(repr(columns))} has no text for each column",
            fix="write names and texts, such as columns={'tips': 'Sum of the tips, in dollars.'}",
            place=output.place,
        )
    long = next((text for text in (description, *map(str, given.values())) if len(text) > MOST), None)
    if long is not None:
        raise DefinitionError(
            f"a description has {len(long):,} characters, and tables keep {MOST:,}: {shortened(repr(long))}",
            fix="say it shorter, and link to the rest",
            place=output.place,
        )
    schema = output_schema(output)
    known = [column.name for column in schema.columns] if schema is not None else None
    for name in given:
        if known is not None and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"write {near[0]!r}" if near else f"describe one of {', '.join(known)}"
            raise ColumnError(f"columns describes {name!r}, which the output does not have", fix=fix, place=output.place)
    # An empty text describes nothing.
    texts = {name: text.strip() for name, text in given.items() if text.strip()}
    return replace(output, description=description.strip(), column_texts=tuple(texts.items()))
