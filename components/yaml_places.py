"""Where in its YAML a component's field is, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, get_args, get_origin

from dagster_shared.yaml_utils.source_position import SourcePositionTree
from pydantic import BaseModel, ValidationError

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


def mistake(error: ValidationError, tree: SourcePositionTree | None = None, model: type[BaseModel] | None = None) -> DefinitionError:
    """Return what is wrong with a component's attributes as one error, with the field's place and name.

    Args:
        error: what pydantic found.
        tree: where in the YAML its fields are, if it is known.
        model: the component, whose fields a fix names.
    """
    found: dict[tuple[str | int, ...], tuple[str, str]] = {}
    for each in error.errors(include_url=False, include_context=False):
        path = tuple(_fields(each["loc"], tree.children.get("attributes") if tree is not None else None))
        what, _, fix = (_SAID.get(each["type"]) or each["msg"].removeprefix("Value error, ")).partition(". Fix: ")
        found[path] = what, fix or _fix(each["type"], path, model)
    # A field that may be of several types has an error of each of them; what is wrong within one of them says more.
    texts = [(path, text) for path, text in found.items() if not any(other[: len(path)] == path for other in found if other != path)]
    (first, (what, fix)), *others = texts
    more = "".join(f"; {_names(path)}: {other}" for path, (other, _) in others)
    return DefinitionError(f"{_names(first)}: {what}{more}" if first else what, fix=fix, place=place_of(first, tree))


_SAID: Final = {
    "extra_forbidden": "there is no such field",
    "missing": "the field is missing",
    "model_type": "it has a value of its own, and takes fields",
}
_FIXES: Final[Mapping[str, str]] = {
    "string_type": "write text, such as '5 minutes' for a duration; a number as text is in quotes",
    "literal_error": "write one of these",
}


def _fix(kind: str, path: tuple[str | int, ...], model: type[BaseModel] | None) -> str:
    """Return what to write instead, by pydantic's kind of an error."""
    if kind == "missing":
        return f"add it: '{path[-1]}: ...'"
    if kind == "extra_forbidden":
        known = _known(model, path[:-1])
        if near := get_close_matches(str(path[-1]), known, 1, 0.75):
            return f"write {near[0]!r}"
        return f"leave it out, or write one of {', '.join(known)}" if known else "leave it out"
    if kind == "model_type" and (known := _known(model, path)):
        return f"write below it, indented, fields of these: {', '.join(known)}"
    return _FIXES.get(kind, "correct that")


def _known(model: type[BaseModel] | None, path: tuple[str | int, ...]) -> list[str]:
    """Return the names of the fields that there are at a place."""
    models = [model] if model is not None else []
    parts = iter(path)
    for part in parts:
        found = [field.annotation for each in models for name, field in each.model_fields.items() if part in {name, field.alias}]
        models = [each for annotation in found for each in _models(annotation)]
        if any(get_origin(each) is dict for annotation in found for each in (annotation, *get_args(annotation))):
            next(parts, None)
    return [field.alias or name for each in models for name, field in each.model_fields.items()]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


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
