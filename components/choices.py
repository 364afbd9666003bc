"""Fields of models of which one is to be given, and models as arguments of functions."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def chosen(model: BaseModel, *names: str) -> str:
    """Return which one of several fields is given.

    Raises:
        ValueError: none, or more than one.
    """
    found = [name for name in names if getattr(model, name) is not None]
    if len(found) != 1:
        raise ValueError(f"{' and '.join(found) or 'none of these'} given. Fix: give exactly one of {', '.join(names)}")
    return found[0]


def given(model: BaseModel | None) -> dict[str, Any]:
    """Return the fields that are given, by the names that they have in YAML, as arguments of the function of the same name."""
    return {} if model is None else model.model_dump(by_alias=True, exclude_none=True)
