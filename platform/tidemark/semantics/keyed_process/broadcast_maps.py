"""The maps of broadcast streams as functions see them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def read_only(entries: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return entries as a map that cannot be changed, nor can its values.

    >>> read_only({"eur": {"rate": 1.1}})["eur"]["rate"]
    1.1
    """
    return MappingProxyType({key: MappingProxyType(value) if isinstance(value, dict) else value for key, value in entries.items()})
