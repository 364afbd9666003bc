"""Tidemark: streams for teams that run Spark and Dagster.

The public names are those of ``__init__.pyi``. Each is loaded at first use, so that ``import tidemark`` costs next to nothing and starts
no JVM. A function that is called with arguments it does not take raises an error that says what to write.
"""

from __future__ import annotations

from types import FunctionType

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__:
        found = _load(name)
        if isinstance(found, FunctionType):
            from tidemark.graph.model.wrong_calls import checked_call

            found = globals()[name] = checked_call(found)
        return found
    from tidemark.graph.model.unknown_members import unknown_name

    raise unknown_name(name, __all__)
