"""Old import paths of names that documentation once gave: they work for one release, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module


def moved(old: str, *, to: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module that stands at an old path.

    Args:
        old: the module's ``__name__``.
        to: the package that has its public names now.
    """

    def get(name: str) -> object:
        public = import_module(to)
        if name not in public.__all__:
            raise AttributeError(f"module {old!r} has no attribute {name!r}; public names are in {to!r}")
        warnings.warn(f"{old} goes away in the next release. Fix: from {to} import {name}", DeprecationWarning, stacklevel=2)
        return getattr(public, name)

    return get
