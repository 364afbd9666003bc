"""Where in its YAML a component's field is."""

from __future__ import annotations

from pathlib import Path

import dagster as dg


class YamlPlaces:
    """Finds the line of a field; without YAML, as where a component is made in Python, a field's place is its path alone.

    Args:
        context: the context that the component was loaded with, None if it was not loaded from YAML.
    """

    def __init__(self, context: dg.ComponentLoadContext | None = None) -> None:
        self._tree = None if context is None else context.resolution_context.source_position_tree

    def of(self, *path: str) -> str:
        """Return the file and line of a field, and its path.

        Args:
            path: the field's names, from the component's attributes on.
        """
        names = ".".join(("attributes", *path))
        if self._tree is None:
            return names
        position, _ = self._tree.lookup_closest_and_path(["attributes", *path], trace=None)
        return f"{Path(position.filename).name}:{position.start.line} ({names})"
