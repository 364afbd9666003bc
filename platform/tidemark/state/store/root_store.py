"""Resolves the root store if none, or only an address, is given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tidemark.errors import DefinitionError, UnknownStoreError
from tidemark.locations import Location
from tidemark.names import location_fix
from tidemark.state.store.store import JobStore

STORE_VARIABLE: Final = "TIDEMARK_STORE"
DEFAULT_STORE: Final = ".tidemark/jobs"


def is_default(root: JobStore) -> bool:
    """Return whether a root store is the default one."""
    return root.location == Location.parse(os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)


def place_of_root(store: str | JobStore | None, declared: str | None = None) -> str:
    """Return where the root store of ``root_store`` is, without opening or making it.

    Raises:
        DefinitionError: what was given is no text.
    """
    if isinstance(store, JobStore):
        return store.uri
    if store is not None and not isinstance(store, str):
        raise DefinitionError(f"store={store!r} names no folder", fix=location_fix(store, "give a folder or bucket, or leave it out"))
    return store or declared or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


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
    place = place_of_root(store, declared)
    try:
        return JobStore.open(place, make=make)
    except UnknownStoreError as error:
        if store or declared or os.environ.get(STORE_VARIABLE):
            raise
        raise UnknownStoreError(
            f"no job has run in {Path.cwd()}: it has no folder {DEFAULT_STORE}, which is the store where none is named",
            fix=f"run this in the folder of the project, or name its store: --store PLACE, or {STORE_VARIABLE}=PLACE",
            place=error.place,
        ) from None
