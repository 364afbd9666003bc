"""Where a job store is, when it is given as a text or as an environment variable."""

from __future__ import annotations

import dagster as dg

from tidemark.errors import DefinitionError


def store_location(store: str | dg.EnvVar, job: str | None = None) -> str:
    """Return where a store is, as a text.

    Args:
        store: as it was given.
        job: the job's name, for the error.

    Raises:
        DefinitionError: the environment variable that says it is not set.
    """
    if not isinstance(store, dg.EnvVar):
        return store
    value = store.get_value()
    if value is None:
        raise DefinitionError("the environment variable of the job store is not set", fix=f"set {store.env_var_name}", job=job)
    return value
