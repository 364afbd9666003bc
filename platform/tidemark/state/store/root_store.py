"""Resolves the root store if none, or only an address, is given."""

from __future__ import annotations

import os
from typing import Final

from tidemark.errors import DefinitionError
from tidemark.locations import Location
from tidemark.names import location_fix
from tidemark.state.store.store import JobStore

STORE_VARIABLE: Final = "TIDEMARK_STORE"
DEFAULT_STORE: Final = ".tidemark/jobs"


def is_default(root: JobStore) -> bool:
    """Return whether a root store is the default one."""
    return root.uri == Location.parse(os.environ.get(STORE_VARIABLE) or DEFAULT_STORE).uri


def root_store(store: str | JobStore | None, declared: str | None = None, *, make: bool = True) -> JobStore:
    """Return the root store: the one given, else the one that the job declares, else that of the environment, as for a run.

    Args:
        store: as it was given.
        declared: by the job.
        make: a local folder that is missing; without it, that is an error.

    Raises:
        DefinitionError: what was given is no text.
        UnknownStoreError: it does not exist, and ``make`` is false.
        StoreError: it cannot be reached.
    """
    if isinstance(store, JobStore):
        return store
    if store is not None and not isinstance(store, str):
        raise DefinitionError(f"store={store!r} names no folder", fix=location_fix(store, "give a folder or bucket, or leave it out"))
    return JobStore.open(store or declared or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE, make=make)
