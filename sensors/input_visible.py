"""A sensor that requests a run when the results of an input are visible in a job's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import dagster as dg

from tidemark.control import Completion, Input, InputWatch
from tidemark.graph import Job
from tidemark.sensors.job_sensor import Decision, PlannedRun, SensorOptions, job_sensor, sensor_name
from tidemark.sensors.sensor_cursor import SensorCursor
from tidemark.state import JobStatus, JobStore

Expected = Callable[[], Mapping[str, Sequence[str]]]
"""Returns inputs by the key of the run that waits for them, such as a day. A run that was requested once is not requested again."""


def build_input_sensor(
    job: Job,
    inputs: Expected,
    *,
    name: str | None = None,
    source: str = "",
    partitioned: bool = False,
    options: SensorOptions | None = None,
) -> dg.SensorDefinition:
    """Return a sensor that requests a run of the options' target for each key whose inputs are all visible in the job's outputs.

    Args:
        job: the job.
        inputs: what is waited for, by key, as ``tm.wait_for`` takes it: ``lambda: {"2025-01-06": ["file:/landing/2025-01-06.json"]}``.
        name: the sensor's name; ``<job>_inputs`` by default.
        source: the source that has to have read them; by default each that reads their topics or folders.
        partitioned: whether a key is the partition of its run.
        options: store, target, interval, status.

    Raises:
        DefinitionError: no store is known.
    """

    def decide(store: JobStore, status: JobStatus, cursor: SensorCursor | None, _: dg.SensorEvaluationContext) -> Decision:
        del status
        watch = InputWatch(store, job.name, source=source)
        return decide_inputs(
            {key: [watch.look(Input.parse(each)) for each in wanted] for key, wanted in inputs().items()}, cursor, partitioned
        )

    return job_sensor(
        job,
        name=sensor_name(job, "inputs", name),
        description=f"Requests a run when the results of the inputs that it waits for are visible in the outputs of `{job.name}`.",
        options=options or SensorOptions(alert_key=None),
        decide=decide,
    )


def decide_inputs(found: Mapping[str, Sequence[Completion]], cursor: SensorCursor | None, partitioned: bool) -> Decision:  # noqa: FBT001
    """Return the decision of a tick, from what the log says of the inputs by key."""
    runs = [
        PlannedRun(key, {"tidemark/epoch": str(max(each.epoch or 0 for each in inputs))}, key if partitioned else None)
        for key, inputs in found.items()
        if inputs and all(each.is_visible for each in inputs)
    ]
    missing = [f"{each.input}: {each.missing}" for inputs in found.values() for each in inputs if not each.is_visible]
    waits = f"; waiting for {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "") if missing else ""
    return Decision(f"{len(runs)} of {len(found)} keys have all their inputs{waits}", cursor, runs=tuple(runs))
