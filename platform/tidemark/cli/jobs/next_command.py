"""Commands that the output suggests as a next step, complete and quoted, so that users can paste them into a shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from tidemark.errors import TidemarkError
from tidemark.state.store.root_store import STORE_VARIABLE, is_default
from tidemark.state.store.store import JobStore

_OF_STORES: Final = re.compile(r"`(tidemark (?!run\b|check\b|graph\b|connectors\b)[a-z][^`]*)`")
"""Commands in a fix that look for a job in a store; those that are given its code find the store there."""


@contextmanager
def naming_store(root: JobStore) -> Iterator[None]:
    """Have commands in the fix of an error name the store, where it is not the default; of those the job's code may know it."""
    try:
        yield
    except TidemarkError as error:
        if not is_default(root):
            error.fix = _OF_STORES.sub(lambda found: f"`{found[1]} --store {shlex.quote(root.uri)}`", error.fix)
            error.args = (str(error),)
        raise


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
