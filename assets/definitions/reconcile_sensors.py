"""Finds the reconcile sensor of a job in a code location, and whether it is on, so that a fix does not ask for what is done already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import dagster as dg

from tidemark.assets.values.metadata_values import MetadataValues
from tidemark.errors import DefinitionError
from tidemark.locations import Location

_STORE_KEY: Final = "tidemark/reconciled_store"
_JOBS_KEY: Final = "tidemark/reconciled_jobs"
_SET_BY_HAND: Final = {"RUNNING": True, "STOPPED": False}
"""Other states defer to the sensor's definition."""


@dataclass(frozen=True)
class ReconcileSensor:
    """A sensor made by ``build_reconcile_sensor``."""

    name: str
    is_on: bool

    def __str__(self) -> str:
        return f"`{self.name}`, the sensor of build_reconcile_sensor"


def reconciled_by(store: str | dg.EnvVar, jobs: tuple[str, ...] | None) -> MetadataValues:
    """Return the metadata of a reconcile sensor, by which ``find_reconcile_sensor`` finds it.

    Args:
        store: folder or bucket of the job stores.
        jobs: the jobs that it reconciles; None for all of the store.
    """
    named = {} if jobs is None else {_JOBS_KEY: dg.MetadataValue.json(list(jobs))}
    return {_STORE_KEY: dg.MetadataValue.text(_store_name(store)), **named}


def find_reconcile_sensor(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition, store: str | dg.EnvVar, job: str, *, location: str | None
) -> ReconcileSensor | None:
    """Return the code location's reconcile sensor of a job, the one that is on if there are several; None if there is none.

    Args:
        instance: the Dagster instance.
        repository: the code location's repository.
        store: folder or bucket of the job stores, however it is written: what was passed to ``build_reconcile_sensor`` may be its URI.
        job: the job's name.
        location: name of the code location, None if unknown: sensors of the same name in other code locations then count, too.
    """
    sensors = [each for each in repository.sensor_defs if _reconciles(each.metadata, store, job)]
    states = dict(_states(instance, location)) if sensors else {}
    found = [ReconcileSensor(each.name, states.get(each.name, each.default_status == dg.DefaultSensorStatus.RUNNING)) for each in sensors]
    return max(found, key=lambda each: each.is_on, default=None)


def _reconciles(metadata: Mapping[str, dg.MetadataValue], store: str | dg.EnvVar, job: str) -> bool:
    if _STORE_KEY not in metadata or not _is_same_store(str(metadata[_STORE_KEY].value), _store_name(store)):
        return False
    jobs = metadata[_JOBS_KEY].value if _JOBS_KEY in metadata else None
    return not isinstance(jobs, list) or job in jobs


def _is_same_store(one: str, other: str) -> bool:
    """Return whether two names of stores, of which each may be that of a variable, are of one place."""
    if one == other:
        return True
    first, second = _location(one), _location(other)
    if first is None or second is None or first.real_parts != second.real_parts:
        return False
    # An account that is not named is that of the environment.
    return first.account is None or second.account is None or first.account == second.account


def _location(name: str) -> Location | None:
    value = os.environ.get(name.removeprefix("$")) if name.startswith("$") else name
    if value is None:
        return None
    try:
        return Location.parse(value)
    except DefinitionError:
        return None


def _states(instance: dg.DagsterInstance, location: str | None) -> Iterator[tuple[str, bool]]:
    """Yield which sensors were turned on or off; the others have the status of their definition."""
    if instance.schedule_storage is None:
        return
    for state in instance.all_instigator_state():
        here = location is None or state.repository_selector.location_name == location
        if here and state.status.value in _SET_BY_HAND:
            yield state.instigator_name, _SET_BY_HAND[state.status.value]


def _store_name(store: str | dg.EnvVar) -> str:
    return f"${store.env_var_name}" if isinstance(store, dg.EnvVar) else store
