"""A sensor that passes the verdicts of asset checks on to the alerts of streaming jobs, however the checks were executed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import dagster as dg

from tidemark.assets.definitions.bound_job import JOB_KEY, OUTPUT_KEY
from tidemark.assets.definitions.job_health import HEALTH_CHECK
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import CheckVerdict, report_check
from tidemark.durations import to_ms
from tidemark.names import is_name
from tidemark.sensors.health.checks_due import runs_of_checks
from tidemark.sensors.store_sensor import open_root, store_sensor

VERDICTS_AT_ONCE = 20
"""Maximum verdicts of one check that one tick passes on, the newest."""

_FORMAT = 1


@dataclass(frozen=True)
class _ReportedState:
    """The last execution of a check whose verdict was reported, and earlier executions that were still under way."""

    number: int
    open: frozenset[int] = frozenset()

    def covers(self, number: int) -> bool:
        """Return whether an execution's verdict was reported, if it had one."""
        return number <= self.number and number not in self.open


def build_check_sensor(
    store: str | dg.EnvVar,
    *,
    jobs: Iterable[str] | None = None,
    name: str = "tidemark_checks",
    every: str | timedelta = "30 seconds",
    recheck: str | timedelta | None = "1 hour",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    clock: Clock = SYSTEM_CLOCK,
) -> dg.SensorDefinition:
    """Return a sensor that passes on the verdicts of checks on outputs of all streaming jobs in the code location.

    ``build_job_health_sensor`` or a supervisor then alerts when a check fails, and again when it passes. It makes no difference whether
    checks are executed in a run of the assets, separately, or reported from outside; for checks on several partitions the last verdict
    counts. A check whose run failed before it had a verdict is not passed on.

    It also requests runs of the checks on outputs of submitted jobs, which nothing else executes: at its first tick, and after their asset
    was materialized. The check ``job_runs`` is excluded: other sensors report it and alert.

    Args:
        store: folder or bucket of the job stores.
        jobs: names of the jobs; all of the code location by default.
        name: the sensor's name.
        every: time between ticks.
        recheck: minimum time between two executions of a check that the sensor requests; None requests none.
        default_status: whether the sensor runs as soon as it is deployed.
        clock: processing time.

    Raises:
        DurationError: ``every`` or ``recheck`` cannot be read.
    """
    recheck_ms = to_ms(recheck, what="recheck", minimum=1000) if recheck is not None else None
    names = frozenset(jobs) if jobs is not None else None

    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        checks = {
            key: place
            for key, place in jobs_of_checks(context.repository_def).items()
            if key.name != HEALTH_CHECK and (names is None or place[0] in names)
        }
        seen = _decode(context.cursor)
        root = open_root(store)
        verdicts = list(_new_verdicts(context.instance, checks, seen))
        for verdict in verdicts:
            report_check(root, verdict)
        failed = sum(not verdict.passed for verdict in verdicts)
        said = f"{len(checks)} checks, {len(verdicts)} new verdicts, {failed} of them failures"
        requests = _requests(context, {key: job for key, (job, _) in checks.items()}, recheck_ms, clock)
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=_encode(seen))
        return dg.SensorResult(skip_reason=said, cursor=_encode(seen))

    return store_sensor(
        evaluate,
        name=name,
        description="Passes failed asset checks of streaming jobs on to their alerts, and requests runs of checks that are out of date.",
        every=every,
        default_status=default_status,
        asset_selection=dg.AssetSelection.all_asset_checks() if recheck_ms is not None else None,
    )


def _requests(
    context: dg.SensorEvaluationContext, jobs: Mapping[dg.AssetCheckKey, str], recheck_ms: int | None, clock: Clock
) -> list[dg.RunRequest]:
    if recheck_ms is None or context.repository_def is None or not jobs:
        return []
    return runs_of_checks(context.instance, context.repository_def, jobs, now_ms=clock.now_ms(), recheck_ms=recheck_ms)


def jobs_of_checks(repository: dg.RepositoryDefinition | None) -> Mapping[dg.AssetCheckKey, tuple[str, str]]:
    """Return the checks on outputs of streaming jobs, with the names of job and output."""
    graph = repository.asset_graph if repository is not None else None
    found = {}
    for key in graph.asset_check_keys if graph is not None else ():
        metadata = graph.get(key.asset_key).metadata if graph is not None and graph.has(key.asset_key) else {}
        if JOB_KEY in metadata and OUTPUT_KEY in metadata:
            found[key] = (str(metadata[JOB_KEY]), str(metadata[OUTPUT_KEY]))
    return found


def verdict_name(output: str, check: str) -> str:
    """Return the name of a check in alerts.

    >>> verdict_name("hourly", "unique_panes")
    'hourly.unique_panes'
    """
    name = f"{output}.{check}"
    return name if is_name(name) else f"{''.join(char if char.isalnum() and char.isascii() else '_' for char in name)[:80]}-{_short(name)}"


def _new_verdicts(
    instance: dg.DagsterInstance, jobs: Mapping[dg.AssetCheckKey, tuple[str, str]], seen: dict[str, _ReportedState]
) -> Iterator[CheckVerdict]:
    """Yield the new verdicts of each check in order, and update ``seen``; for a new check only the last verdict."""
    storage = instance.event_log_storage
    for key, latest in storage.get_latest_asset_check_execution_by_key(list(jobs)).items():
        place = key.to_user_string()
        known = seen.get(place)
        if known is not None and known.number == latest.id and not known.open:
            continue
        # Executions end in any order: one of a small partition may end before an earlier one.
        records = storage.get_asset_check_execution_history(key, limit=VERDICTS_AT_ONCE)
        found = [(record.id, record.evaluation, record.event) for record in records]
        made = {number: (event.timestamp, said) for number, said, event in found if isinstance(said, dg.AssetCheckEvaluation) and event}
        new = sorted((at, number) for number, (at, _) in made.items() if known is None or not known.covers(number))
        reported = max((known.number if known is not None else 0, *made))
        seen[place] = _ReportedState(reported, frozenset(record.id for record in records if record.id < reported and record.id not in made))
        for at, number in new[-1:] if known is None else new:
            yield _verdict(jobs[key], made[number][1], int(at * 1000))


def _verdict(place: tuple[str, str], made: dg.AssetCheckEvaluation, at: int) -> CheckVerdict:
    job, output = place
    severity: Literal["warn", "error"] = "warn" if made.severity == dg.AssetCheckSeverity.WARN else "error"
    return CheckVerdict(job, verdict_name(output, made.check_name), made.passed, at, severity, made.description or "")


def _encode(seen: Mapping[str, _ReportedState]) -> str:
    """Encode a cursor: for each check the last reported execution, in a list with earlier ones that are under way."""
    checks = {place: [reported.number, *sorted(reported.open)] if reported.open else reported.number for place, reported in seen.items()}
    return json.dumps({"format": _FORMAT, "checks": checks}, sort_keys=True)


def _decode(text: str | None) -> dict[str, _ReportedState]:
    """Decode a cursor; empty if there is none or it has another format: then the last verdicts are reported again."""
    try:
        raw = json.loads(text or "null")
        if not isinstance(raw, dict) or raw.get("format") != _FORMAT:
            return {}
        return {str(key): _reported_state(found) for key, found in _items(raw["checks"])}
    except (ValueError, TypeError, KeyError):
        return {}


def _reported_state(found: object) -> _ReportedState:
    number, *open_ = (int(str(each)) for each in (found if isinstance(found, list) else [found]))
    return _ReportedState(number, frozenset(open_))


def _items(found: object) -> Iterable[tuple[object, object]]:
    return found.items() if isinstance(found, dict) else ()


def _short(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
