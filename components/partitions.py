"""Time partitions of outputs in YAML, in the form that Dagster's own components have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import dagster as dg
from dagster.components.resolved.core_models import (
    DailyPartitionsDefinitionModel,
    HourlyPartitionsDefinitionModel,
    TimeWindowPartitionsDefinitionModel,
    WeeklyPartitionsDefinitionModel,
    resolve_partitions_def,
)
from pydantic import Field

from tidemark.assets.definitions.continuous import Partitions
from tidemark.errors import DefinitionError

PartitionsModel = Annotated[
    HourlyPartitionsDefinitionModel
    | DailyPartitionsDefinitionModel
    | WeeklyPartitionsDefinitionModel
    | TimeWindowPartitionsDefinitionModel,
    Field(discriminator="type"),
]


def resolve_partitions(context: dg.ResolutionContext, given: object) -> Partitions:
    """Return the partitions of all main outputs, or by output.

    Raises:
        DefinitionError: they are no time partitions.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {str(name): _time_partitions(context, model) for name, model in given.items()}
    return _time_partitions(context, given)


def _time_partitions(context: dg.ResolutionContext, model: object) -> dg.TimeWindowPartitionsDefinition:
    found = resolve_partitions_def(context, model)
    if not isinstance(found, dg.TimeWindowPartitionsDefinition):
        raise DefinitionError(
            "`partitions` are no time partitions", fix="give `type: hourly` (or daily, weekly, time_window) and `start_date`"
        )
    return found


ResolvedPartitions = Annotated[
    Partitions,
    dg.Resolver(
        resolve_partitions,
        model_field_type=PartitionsModel | dict[str, PartitionsModel] | None,
        description="Time partitions by event time: of all main outputs, or by output name.",
        examples=[{"type": "hourly", "start_date": "2026-01-01-00:00"}],
    ),
]
