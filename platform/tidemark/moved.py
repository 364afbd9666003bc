"""Deprecated import paths: names that the documentation once gave under them work for one more release, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module


def moved(old: str, *, to: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module at a deprecated path.

    Args:
        old: the module's ``__name__``.
        to: the package that now exports its public names.
    """

    def get(name: str) -> object:
        public = import_module(to)
        if name not in public.__all__:
            raise AttributeError(f"module {old!r} has no attribute {name!r}; public names are in {to!r}")
        warnings.warn(f"{old} goes away in the next release. Fix: from {to} import {name}", DeprecationWarning, stacklevel=2)
        return getattr(public, name)

    return get
