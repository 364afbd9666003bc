"""Tidemark: streams for teams that run Spark and Dagster.

The public names are those of ``__init__.pyi``. Each is loaded at first use, so that ``import tidemark`` costs next to nothing and starts
no JVM.
"""

from __future__ import annotations

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    from tidemark.graph.model.unknown_members import unknown_name

    raise unknown_name(name, __all__)
