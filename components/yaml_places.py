"""Where in its YAML a component's field is, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dagster_shared.yaml_utils.source_position import SourcePositionTree
from pydantic import ValidationError

from tidemark.errors import DefinitionError

_TYPE: Final = re.compile(r"(dict|list|tuple|function-|union|tagged-union|literal|nullable|constrained)\b.*|\w+Model|str|int|bool|float")
"""Parts of pydantic's places that are no fields, but alternatives of a field's type."""


class YamlPlaces:
    """Finds the line of a field; without YAML, as where a component is made in Python, a field's place is its path alone.

    Args:
        tree: where its fields are.
    """

    def __init__(self, tree: SourcePositionTree | None = None) -> None:
        self._tree = tree

    @property
    def file(self) -> str:
        """The file, as commands in the folder of this process name it; `defs.yaml` where it is not known."""
        if self._tree is None:
            return "defs.yaml"
        path, here = Path(self._tree.position.filename).absolute(), Path.cwd()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)

    def of(self, *path: str) -> str:
        """Return the file and line of a field, and its path.

        Args:
            path: the field's names, from the component's attributes on.
        """
        return place_of(path, self._tree)


def mistake(error: ValidationError, tree: SourcePositionTree | None = None) -> DefinitionError:
    """Return what is wrong with a component's attributes as one error, with the field's place and name.

    Args:
        error: what pydantic found.
        tree: where in the YAML its fields are, if it is known.
    """
    found: dict[tuple[str | int, ...], str] = {}
    for each in error.errors(include_url=False, include_context=False):
        path = tuple(_fields(each["loc"], tree.children.get("attributes") if tree is not None else None))
        found[path] = _SAID.get(each["type"]) or each["msg"].removeprefix("Value error, ")
    # A field that may be of several types has an error of each of them; what is wrong within one of them says more.
    texts = [(path, text) for path, text in found.items() if not any(other[: len(path)] == path for other in found if other != path)]
    (first, text), *others = texts
    what, _, fix = text.partition(". Fix: ")
    more = "".join(f"; {_names(path)}: {other}" for path, other in others)
    return DefinitionError(f"{_names(first)}: {what}{more}" if first else what, fix=fix or "correct that", place=place_of(first, tree))


_SAID: Final = {"extra_forbidden": "there is no such field", "missing": "the field is missing"}


def _fields(loc: tuple[str | int, ...], tree: SourcePositionTree | None) -> Iterator[str | int]:
    """Yield the names of fields in a place of pydantic's."""
    for part in loc:
        known = tree is not None and part in tree.children
        if known or isinstance(part, int) or not _TYPE.fullmatch(part):
            yield part
            tree = tree.children.get(part) if tree is not None else None


def _names(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def place_of(path: tuple[str | int, ...], tree: SourcePositionTree | None) -> str:
    """Return the file and line of a field, as far as the tree has them, and its path from the attributes on."""
    names = _names(("attributes", *path))
    if tree is None:
        return names
    position, _ = tree.lookup_closest_and_path(["attributes", *path], trace=None)
    return f"{Path(position.filename).name}:{position.start.line} ({names})"
