"""The location of a job store that is given as text or as an environment variable."""

from __future__ import annotations

import dagster as dg

from tidemark.errors import DefinitionError


def store_location(store: str | dg.EnvVar, job: str | None = None) -> str:
    """Return a store's location as text.

    Args:
        store: the location, or the variable that contains it.
        job: the job's name, for the error.

    Raises:
        DefinitionError: the environment variable is not set.
    """
    if not isinstance(store, dg.EnvVar):
        return store
    value = store.get_value()
    if value is None:
        raise DefinitionError("the environment variable of the job store is not set", fix=f"set {store.env_var_name}", job=job)
    return value
