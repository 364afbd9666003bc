"""Commands to suggest next, whole and quoted, so that they can be pasted into a shell."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from tidemark.state.store.root_store import STORE_VARIABLE


def next_command(
    *words: str, store: str | None, variables: Mapping[str, str] | None = None, code_paths: Sequence[str] = (), folder: str | None = None
) -> str:
    """Return a command in backquotes.

    Args:
        words: what stands behind ``tidemark``.
        store: as it was given; left out where the environment says the same.
        variables: of its environment.
        code_paths: where Python finds the code.
        folder: that it is given in.
    """
    given = ("--store", store) if store is not None and store != os.environ.get(STORE_VARIABLE) else ()
    environment = {**(variables or {}), **({"PYTHONPATH": os.pathsep.join(code_paths)} if code_paths else {})}
    before = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    changed = f"cd {shlex.quote(folder)} && " if folder is not None else ""
    return f"`{changed}{' '.join([*before, shlex.join(('tidemark', *words, *given))])}`"
