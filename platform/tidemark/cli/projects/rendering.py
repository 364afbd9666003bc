"""The files of a project, from a template: texts in which names are replaced. Nothing of a template is executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Final, Literal, get_args

TemplateName = Literal["minimal", "taxi", "kafka"]
"""``minimal``: files in, counts out. ``taxi``: with late, rejected and malformed rows. ``kafka``: the same over a topic."""

TEMPLATES: Final[tuple[TemplateName, ...]] = get_args(TemplateName)

_SHARED: Final = "shared"
_SUFFIX: Final = ".tmpl"
_PACKAGE: Final = "package"
_HIDDEN: Final = frozenset({"gitignore", "gitkeep"})
"""Files whose names begin with a dot in the project: package data has no such names."""

_DEPENDENCIES: Final[Mapping[TemplateName, tuple[str, ...]]] = {
    "minimal": ("tidemark[dagster]",),
    "taxi": ("tidemark[dagster]",),
    "kafka": ("tidemark[dagster]", "confluent-kafka>=2.4"),
}


class _Text(Template):
    """A file of a template: ``@@package`` and ``@@{package}`` are the project's name; ``$`` and ``{}`` mean nothing."""

    delimiter = "@@"


def render(template: TemplateName, package: str) -> Mapping[str, str]:
    """Return the files of a project: their texts by path, with ``/``.

    Args:
        template: which one.
        package: the project's name.
    """
    values = {"package": package, "template": template, "dependencies": ", ".join(f'"{name}"' for name in _DEPENDENCIES[template])}
    root = files("tidemark.cli.projects") / "templates"
    return {
        _path(parts, package): _Text(file.read_text(encoding="utf-8")).substitute(values)
        for folder in (_SHARED, template)
        for parts, file in _walk(root / folder)
    }


def _walk(folder: Traversable, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Traversable]]:
    """Yield the files of a template in a folder, each with the parts of its path."""
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        parts = (*above, entry.name)
        if entry.is_dir():
            yield from _walk(entry, parts)
        elif entry.name.endswith(_SUFFIX):
            yield parts, entry


def _path(parts: tuple[str, ...], package: str) -> str:
    name = parts[-1].removesuffix(_SUFFIX)
    folders = (package if part == _PACKAGE else part for part in parts[:-1])
    return "/".join((*folders, f".{name}" if name in _HIDDEN else name))
