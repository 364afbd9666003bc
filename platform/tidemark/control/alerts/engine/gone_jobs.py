"""Alerts of jobs that are gone: forks that were discarded, and jobs whose folder was deleted. They are announced as over.

A job's alerts are in its folder. Before that is deleted, those that were sent and have not ended are kept in ``_alerts/gone/<job>/`` at the
store's root, until a watch has sent their end.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tidemark.clock import Clock
from tidemark.control.alerts.delivery.delivery_queue import KEPT_MS, Delivered, DeliveryQueue, Receiver, outgoing, without
from tidemark.control.alerts.engine.alert_checks import CHECKS
from tidemark.control.alerts.engine.alert_silences import Silence, silenced
from tidemark.control.alerts.engine.alert_store import KIND, read_alerts
from tidemark.control.alerts.model.alert_state import Change, JobAlerts, Notification, Outgoing
from tidemark.errors import CorruptStoreError, FormatError
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.encoding.envelope import encode_envelope
from tidemark.state.store.documents import create_document, read_document, write_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

GONE: Final = "_alerts/gone"
REASON: Final = "the job is gone: it was discarded, or its folder was deleted"
_LOG = logging.getLogger("tidemark.alerts")


def keep_alerts(root: JobStore, job: str) -> None:
    """Keep a job's open alerts, and drop the verdicts of its checks; called before its folder is deleted, again after a crash.

    Raises:
        StoreError: the store cannot be reached.
    """
    # Alerts that cannot be read must not keep a job from being deleted.
    with suppress(CorruptStoreError, FormatError):
        keep(root, read_alerts(root, job).alerts)
    root.remove_folder(f"{CHECKS}/{job_folder(job)}")


def keep(root: JobStore, alerts: JobAlerts) -> str | None:
    """Keep the alerts of a job that is gone, and return their place; None if all that was sent has ended."""
    if not alerts.notified_conditions() and not alerts.outbox:
        return None
    # The same alerts are kept once.
    digest = hashlib.sha256(encode_envelope(KIND, to_jsonable(alerts))).hexdigest()[:16]
    path = f"{GONE}/{job_folder(alerts.job)}/{digest}.json"
    create_document(root, path, kind=KIND, value=alerts)
    return path


class GoneJobs:
    """Announces the alerts of jobs that are gone as over.

    Args:
        root: the root store.
        receivers: by name.
        queue: sends to them.
        clock: processing time.
    """

    def __init__(self, root: JobStore, receivers: Mapping[str, Receiver], queue: DeliveryQueue, clock: Clock) -> None:
        self._root = root
        self._receivers = receivers
        self._queue = queue
        self._clock = clock
        self._found: dict[str, JobAlerts] = {}
        self._delivered: frozenset[Delivered] = frozenset()
        self._done: set[str] = set()

    def find(self) -> frozenset[str]:
        """Read what is kept, and return the names of these jobs; a job of such a name may have been submitted again since.

        Raises:
            StoreError: the store cannot be reached.
        """
        self._found = dict(self._read())
        return frozenset(alerts.job for alerts in self._found.values())

    def keep(self, alerts: Iterable[JobAlerts]) -> None:
        """Keep the alerts of jobs whose folder was deleted, as this process knew them."""
        for item in alerts:
            path = keep(self._root, item)
            if path in self._done:
                # Who deleted the folder had kept them, and they were announced.
                self._root.delete([path])
            elif path is not None:
                self._found[path] = item

    def send(self, holds: Callable[[str], bool], silences: tuple[Silence, ...], may_continue: Callable[[], bool]) -> tuple[Outgoing, ...]:
        """Send what was found or kept of jobs, and return what waits for a receiver.

        Args:
            holds: whether this process sends the alerts of a job.
            silences: active silences: jobs to which one applies are announced when it has ended.
            may_continue: as of ``DeliveryQueue.send``.

        Raises:
            StoreError: the store cannot be reached.
        """
        kept = {path: alerts for path, alerts in self._found.items() if holds(alerts.job) and not _is_silenced(alerts, silences)}
        if not kept:
            return ()
        ended = {path: self._ended(alerts) for path, alerts in kept.items()}
        pending = [item for alerts in ended.values() for item in without(alerts.outbox, alerts.job, self._delivered)]
        # Kept until it is stored, as by the watch.
        self._delivered |= self._queue.send(pending, may_continue=may_continue)
        left: list[Outgoing] = []
        for path, alerts in ended.items():
            after = replace(alerts, outbox=without(alerts.outbox, alerts.job, self._delivered))
            if not after.outbox:
                self._root.delete([path])
                self._done.add(path)
            elif after.outbox != kept[path].outbox:
                write_document(self._root, path, kind=KIND, value=after)
            left += after.outbox
        self._delivered = frozenset()
        return tuple(left)

    def delete_old(self, now: int) -> None:
        """Delete what no process has sent for a week, such as of jobs that none watches any more."""
        self._root.delete(file.path for file in self._root.list(GONE) if now - file.last_modified_ms >= KEPT_MS)

    def _ended(self, alerts: JobAlerts) -> JobAlerts:
        now = self._clock.now_ms()
        changes = tuple(
            Change(item.rule, item.subject, before=item.told, now="ok", peak=item.told, since=now, text=REASON)
            for item in alerts.conditions
            if item.told != "ok"
        )
        made = (Notification(alerts.job, alerts.notified + 1, now, changes),) if changes else ()
        outbox = (*alerts.outbox, *outgoing(made, alerts.outbox, self._receivers))
        return replace(alerts, conditions=(), notified=alerts.notified + len(made), outbox=outbox)

    def _read(self) -> Iterable[tuple[str, JobAlerts]]:
        for file in self._root.list(GONE):
            try:
                alerts = read_document(self._root, file.path, kind=KIND, form=JobAlerts)
            except (CorruptStoreError, FormatError) as error:
                _LOG.warning("alerts of a job that is gone cannot be read: %s", error)
                continue
            if alerts is not None:
                yield file.path, alerts


def _is_silenced(alerts: JobAlerts, silences: tuple[Silence, ...]) -> bool:
    return any(silenced(silences, job=alerts.job, rule=item.rule) for item in alerts.conditions if item.told != "ok")
