"""Evaluates alert rules and sends notifications, once per pass of a supervisor. Reads and writes small files only."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.alerts.delivery.delivery_queue import Delivered, DeliveryQueue, Receiver, ReceiverCounts, outgoing, without
from tidemark.control.alerts.engine.alert_checks import VerdictFile, delete_processed, failed_checks, verdict_files
from tidemark.control.alerts.engine.alert_engine import step, step_unreadable
from tidemark.control.alerts.engine.alert_inputs import savepoint_at
from tidemark.control.alerts.engine.alert_rules import RuleContext
from tidemark.control.alerts.engine.alert_silences import Silence, delete_expired, read_silences
from tidemark.control.alerts.engine.alert_store import AlertRecord, read_alerts, worth_storing, write_alerts
from tidemark.control.alerts.engine.gone_jobs import GoneJobs
from tidemark.control.alerts.engine.watch_leases import WatchLeases
from tidemark.control.alerts.model.alert_message import compacted
from tidemark.control.alerts.model.alert_settings import AlertSettings
from tidemark.control.alerts.model.alert_state import Condition, JobAlerts, Outgoing
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import job_names
from tidemark.errors import CorruptStoreError, FormatError, TidemarkError
from tidemark.state.store.store import JobStore

_LOG = logging.getLogger("tidemark.alerts")
_TRIES = 3
_TIDY_EVERY_MS = 3_600_000


@dataclass(frozen=True)
class WatchReport:
    """The result of an evaluation.

    Args:
        is_leader: whether this process sends alerts, at least of one job.
        firing: firing conditions of its rules, by job.
        pending: pending messages by receiver.
        left_to_others: jobs whose alerts another process sends, sorted.
    """

    is_leader: bool
    firing: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)
    left_to_others: tuple[str, ...] = ()


class AlertWatch:
    """Evaluates the rules on views of jobs, and sends notifications.

    Several processes may watch the same jobs: the holder of a job's lease evaluates the job, the others only poll the leases. New
    notifications go to the holder's receivers; those pending for other processes' receivers stay until a process that has them takes the
    lease. Alerts of rules that are not enabled here are another process's, and left as they are.

    Args:
        root: the root store.
        settings: rules and grouping.
        receivers: by name.
        holder: a unique name of this process.
        jobs: names of the jobs that are watched; None for all of the store. Watches of other jobs do not wait for this one.
        clock: processing time.
    """

    def __init__(
        self,
        root: JobStore,
        *,
        settings: AlertSettings,
        receivers: Mapping[str, Receiver],
        holder: str,
        jobs: Collection[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._root = root
        self._settings = settings
        self._receivers = receivers
        self._clock = clock
        self._leases = WatchLeases(root, holder, None if jobs is None else tuple(sorted(set(jobs))), clock)
        self._queue = DeliveryQueue(receivers, clock)
        self._gone = GoneJobs(root, receivers, self._queue, clock)
        self._records: dict[str, AlertRecord] = {}
        self._delivered: frozenset[Delivered] = frozenset()
        self._tidied_at: int | None = None

    @property
    def counts(self) -> Mapping[str, ReceiverCounts]:
        """Counts of messages by receiver, since the process started."""
        return self._queue.counts

    def evaluate(self, views: Iterable[JobView], *, unreadable: Mapping[str, TidemarkError] | None = None) -> WatchReport:
        """Evaluate jobs once: evaluate, store, send.

        A job whose alert files cannot be read is skipped with a warning in the log, and evaluated again the next time.

        Args:
            views: of all watched jobs.
            unreadable: errors of further jobs whose files cannot be read.

        Raises:
            StoreError: the store cannot be reached; notifications are sent later.
        """
        if not self._leases.take():
            # Another process may have continued from the records since.
            self._records.clear()
        looked = dict(_views_and_errors(views, unreadable or {}))
        own = {job: found for job, found in looked.items() if self._leases.holds(job)}
        others = tuple(sorted(looked.keys() - own.keys()))
        for job in self._gone.find():
            # Of a job of the same name that was submitted since nothing is known.
            self._records.pop(job, None)
        self._keep_gone(looked.keys())
        self._forget_others(own.keys())
        silences = read_silences(self._root, self._clock.now_ms())
        if own:
            self._evaluate_jobs(own, silences)
            self._deliver()
            self._tidy(self._clock.now_ms())
        gone = self._gone.send(self._leases.holds, silences, lambda: self._leases.is_valid)
        waiting = (*self._pending(), *gone)
        return WatchReport(
            is_leader=bool(own) or (not others and self._leases.is_first),
            firing={job: firing for job, record in self._records.items() if (firing := self._firing(record))},
            pending={name: sum(name in item.receivers for item in waiting) for name in self._receivers},
            left_to_others=others,
        )

    def close(self) -> None:
        """Release the leases, so that another process can continue at once."""
        self._leases.release()
        self._records.clear()

    def _keep_gone(self, looked: Collection[str]) -> None:
        """Keep the alerts of jobs whose folder was deleted since the last evaluation."""
        missing = {job: record.alerts for job, record in self._records.items() if job not in looked}
        if missing:
            there = job_names(self._root)
            self._gone.keep(alerts for job, alerts in missing.items() if job not in there)

    def _forget_others(self, own: Collection[str]) -> None:
        for job in self._records.keys() - own:
            del self._records[job]
        self._delivered = frozenset(item for item in self._delivered if item[0] in own)

    def _firing(self, record: AlertRecord) -> tuple[Condition, ...]:
        return tuple(item for item in record.alerts.firing_conditions() if self._settings.rule(item.rule).enabled)

    def _evaluate_jobs(self, own: Mapping[str, JobView | TidemarkError], silences: tuple[Silence, ...]) -> None:
        verdicts = verdict_files(self._root)
        for job, view_or_error in own.items():
            try:
                self._evaluate_job(job, view_or_error, silences, verdicts.get(job, ()))
            except (CorruptStoreError, FormatError) as error:
                _LOG.warning("%s: its alerts are not evaluated: %s", job, error)

    def _evaluate_job(
        self, job: str, view_or_error: JobView | TidemarkError, silences: tuple[Silence, ...], verdicts: tuple[VerdictFile, ...]
    ) -> None:
        if isinstance(view_or_error, TidemarkError):
            verdicts, context = (), RuleContext()
        else:
            context = RuleContext(failed_checks(self._root, verdicts), savepoint_at(self._root, view_or_error))
        for _ in range(_TRIES):
            record, now = self._record(job), self._clock.now_ms()
            if isinstance(view_or_error, TidemarkError):
                after, notifications = step_unreadable(record.alerts, view_or_error, now, settings=self._settings, silences=silences)
            else:
                after, notifications = step(record.alerts, view_or_error, now, settings=self._settings, context=context, silences=silences)
            after = replace(after, outbox=compacted((*after.outbox, *outgoing(notifications, after.outbox, self._receivers))))
            if self._store(record, after):
                if self._settings.rule("check").enabled:
                    delete_processed(self._root, verdicts)
                return

    def _deliver(self) -> None:
        # Kept until it is stored: a store that rejects writes for a time must not make a receiver get the same alert repeatedly.
        self._delivered |= self._queue.send(self._pending(), may_continue=lambda: self._leases.is_valid)
        for job in sorted({job for job, _, _ in self._delivered}):
            record = self._record(job)
            if self._store(record, replace(record.alerts, outbox=without(record.alerts.outbox, job, self._delivered))):
                self._delivered = frozenset(item for item in self._delivered if item[0] != job)

    def _store(self, record: AlertRecord, after: JobAlerts) -> bool:
        """Store the state that follows a record; False if another process was faster, whose record is then to be read."""
        if not worth_storing(record.alerts, after):
            self._records[after.job] = AlertRecord(record.number, after)
            return True
        try:
            stored = write_alerts(self._root, record, after)
        except BaseException:
            del self._records[after.job]
            raise
        if stored is None:
            del self._records[after.job]
            return False
        self._records[after.job] = stored
        return True

    def _record(self, job: str) -> AlertRecord:
        record = self._records.get(job)
        if record is None:
            record = self._records[job] = read_alerts(self._root, job)
        return record

    def _pending(self) -> list[Outgoing]:
        return [item for job, record in sorted(self._records.items()) for item in without(record.alerts.outbox, job, self._delivered)]

    def _tidy(self, now: int) -> None:
        if self._tidied_at is None or abs(now - self._tidied_at) >= _TIDY_EVERY_MS:
            delete_expired(self._root, now)
            self._gone.delete_old(now)
            self._tidied_at = now


def _views_and_errors(views: Iterable[JobView], unreadable: Mapping[str, TidemarkError]) -> Iterator[tuple[str, JobView | TidemarkError]]:
    yield from ((view.job, view) for view in views)
    yield from unreadable.items()
