"""Watches jobs and tells: one look per pass of a supervisor. Reads and writes small files only."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.alerts.delivery.delivery_queue import DeliveryQueue, Receiver, ReceiverCounts, Taken
from tidemark.control.alerts.engine.alert_book import Page, read_alerts, worth_storing, write_alerts
from tidemark.control.alerts.engine.alert_checks import VerdictFile, failed_checks, forget_taken_up, verdict_files
from tidemark.control.alerts.engine.alert_rules import Evidence
from tidemark.control.alerts.engine.alert_silences import Silence, forget_ended, read_silences
from tidemark.control.alerts.engine.alert_step import step, step_unreadable
from tidemark.control.alerts.model.alert_message import compacted, for_route
from tidemark.control.alerts.model.alert_settings import AlertSettings
from tidemark.control.alerts.model.alert_state import Condition, JobAlerts, Notification, Outgoing
from tidemark.control.model.layout import ALERT_LEASES
from tidemark.control.model.view import JobView
from tidemark.control.observed.leases import StandingLease
from tidemark.errors import CorruptStoreError, FormatError, TidemarkError
from tidemark.state.store.layout import PINS, job_folder
from tidemark.state.store.store import JobStore

_LOG = logging.getLogger("tidemark.alerts")
_TRIES = 3
_FORGET_EVERY_MS = 3_600_000


@dataclass(frozen=True)
class WatchReport:
    """What a look found: whether this process is the one that tells, what goes on by job, and how many messages still wait."""

    telling: bool
    open: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)


class AlertWatch:
    """Evaluates the rules on views of jobs, and sends what is to be told.

    Several processes may watch one store: the holder of a lease does it, the others only look after the lease. What is new is told to the
    receivers of the holder; what waits for those of others stays until one comes who has them.

    Args:
        root: the root store.
        settings: rules and grouping.
        receivers: by name.
        holder: this process, by a name that no other has.
        clock: the time.
    """

    def __init__(
        self, root: JobStore, *, settings: AlertSettings, receivers: Mapping[str, Receiver], holder: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._root = root
        self._settings = settings
        self._receivers = receivers
        self._clock = clock
        self._lease = StandingLease(root, ALERT_LEASES, holder, clock)
        self._queue = DeliveryQueue(receivers, clock)
        self._pages: dict[str, Page] = {}
        self._taken: frozenset[Taken] = frozenset()
        self._forgot_at: int | None = None

    @property
    def counts(self) -> Mapping[str, ReceiverCounts]:
        """What became of the messages, by receiver, since the process began."""
        return self._queue.counts

    def look(self, views: Iterable[JobView], *, unreadable: Mapping[str, TidemarkError] | None = None) -> WatchReport:
        """Look at jobs once: evaluate, store, send.

        A job whose files cannot be read is left out with a word in the log, and looked at again the next time.

        Args:
            views: of all jobs that are watched.
            unreadable: the jobs besides whose files cannot be read, with the error.

        Raises:
            StoreError: the store cannot be reached; what was to be told is told later.
        """
        if not self._lease.take():
            self._pages.clear()
            self._taken = frozenset()
            return WatchReport(telling=False)
        now = self._clock.now_ms()
        silences, verdicts = read_silences(self._root, now), verdict_files(self._root)
        seen = set()
        for job, look in _looks(views, unreadable or {}):
            seen.add(job)
            try:
                self._evaluate(job, look, silences, verdicts.get(job, ()))
            except (CorruptStoreError, FormatError) as error:
                _LOG.warning("%s: its alerts are not evaluated: %s", job, error)
        for job in self._pages.keys() - seen:
            del self._pages[job]
        self._deliver()
        self._tidy(now)
        return WatchReport(
            telling=True,
            open={job: open_ for job, page in self._pages.items() if (open_ := _open(page.alerts))},
            waiting={name: sum(name in item.receivers for item in self._waiting()) for name in self._receivers},
        )

    def close(self) -> None:
        """Let another process go on at once."""
        self._lease.release()
        self._pages.clear()

    def _evaluate(self, job: str, look: JobView | TidemarkError, silences: tuple[Silence, ...], verdicts: tuple[VerdictFile, ...]) -> None:
        if isinstance(look, TidemarkError):
            verdicts, evidence = (), Evidence()
        else:
            evidence = Evidence(failed_checks(self._root, verdicts), self._savepoint_at(look))
        for _ in range(_TRIES):
            page, now = self._page(job), self._clock.now_ms()
            if isinstance(look, TidemarkError):
                after, told = step_unreadable(page.alerts, look, now, settings=self._settings, silences=silences)
            else:
                after, told = step(page.alerts, look, now, settings=self._settings, evidence=evidence, silences=silences)
            after = replace(after, outbox=compacted((*after.outbox, *self._outgoing(told, after.outbox))))
            if self._store(page, after):
                forget_taken_up(self._root, verdicts)
                return

    def _outgoing(self, told: Iterable[Notification], outbox: Iterable[Outgoing]) -> Iterable[Outgoing]:
        # A receiver of others that has not heard of the beginning yet is to hear of the end, too.
        others = tuple(sorted({name for item in outbox for name in item.receivers} - self._receivers.keys()))
        for notification in told:
            own = tuple(name for name, receiver in self._receivers.items() if for_route(notification, receiver.route) is not None)
            names = own + others
            if names:
                yield Outgoing(notification, names)

    def _deliver(self) -> None:
        # Remembered until it is stored: a store that takes no writes for a while must not make a receiver hear the same again and again.
        self._taken |= self._queue.send(self._waiting(), may_go_on=lambda: self._lease.lasts)
        for job in sorted({job for job, _, _ in self._taken}):
            page = self._page(job)
            if self._store(page, replace(page.alerts, outbox=_without(page.alerts.outbox, job, self._taken))):
                self._taken = frozenset(item for item in self._taken if item[0] != job)

    def _store(self, page: Page, after: JobAlerts) -> bool:
        """Remember what comes after a page; False where another process went on from it, whose page is then to be read."""
        if not worth_storing(page.alerts, after):
            self._pages[after.job] = Page(page.number, after)
            return True
        try:
            stored = write_alerts(self._root, page, after)
        except BaseException:
            del self._pages[after.job]
            raise
        if stored is None:
            del self._pages[after.job]
            return False
        self._pages[after.job] = stored
        return True

    def _page(self, job: str) -> Page:
        page = self._pages.get(job)
        if page is None:
            page = self._pages[job] = read_alerts(self._root, job)
        return page

    def _waiting(self) -> list[Outgoing]:
        return [item for job, page in sorted(self._pages.items()) for item in _without(page.alerts.outbox, job, self._taken)]

    def _savepoint_at(self, view: JobView) -> int | None:
        if view.spec is None or view.spec.alerts.savepoint_age_ms is None:
            return None
        files = self._root.at(job_folder(view.job)).list(PINS)
        return max((file.last_modified_ms for file in files), default=None)

    def _tidy(self, now: int) -> None:
        if self._forgot_at is None or abs(now - self._forgot_at) >= _FORGET_EVERY_MS:
            forget_ended(self._root, now)
            self._forgot_at = now


def _looks(views: Iterable[JobView], unreadable: Mapping[str, TidemarkError]) -> Iterator[tuple[str, JobView | TidemarkError]]:
    yield from ((view.job, view) for view in views)
    yield from unreadable.items()


def _open(alerts: JobAlerts) -> tuple[Condition, ...]:
    return tuple(item for item in alerts.conditions if item.severity != "ok")


def _without(outbox: tuple[Outgoing, ...], job: str, taken: frozenset[Taken]) -> tuple[Outgoing, ...]:
    left = (
        replace(item, receivers=tuple(name for name in item.receivers if (job, item.notification.number, name) not in taken))
        for item in outbox
    )
    return tuple(item for item in left if item.receivers)
