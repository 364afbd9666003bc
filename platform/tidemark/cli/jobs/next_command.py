"""Commands that the output suggests as a next step, complete and quoted, so that users can paste them into a shell."""

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
        words: the arguments of ``tidemark``.
        store: the store as it was given; left out where the environment names the same.
        variables: environment variables of the command.
        code_paths: entries of its PYTHONPATH.
        folder: its working directory.
    """
    given = ("--store", store) if store is not None and store != os.environ.get(STORE_VARIABLE) else ()
    environment = {**(variables or {}), **({"PYTHONPATH": os.pathsep.join(code_paths)} if code_paths else {})}
    before = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    changed = f"cd {shlex.quote(folder)} && " if folder is not None else ""
    return f"`{changed}{' '.join([*before, shlex.join(('tidemark', *words, *given))])}`"
