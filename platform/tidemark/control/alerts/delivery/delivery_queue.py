"""Sends pending notifications: merges old ones, sends a digest of too many, and pauses a receiver that fails.

Pending notifications are stored elsewhere; this state may be lost when the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidemark.clock import Clock
from tidemark.control.alerts.delivery.delivery import Delivery
from tidemark.control.alerts.model.alert import Alert
from tidemark.control.alerts.model.alert_message import digest, for_route, merged, message
from tidemark.control.alerts.model.alert_settings import Route
from tidemark.control.alerts.model.alert_state import Notification, Outgoing
from tidemark.durations import format_duration, short_duration
from tidemark.errors import AlertError, TidemarkError
from tidemark.state.encoding.redaction import redacted

KEPT_MS: Final = 7 * 24 * 3_600_000
"""How long messages wait for a receiver that this process does not have. Another process may have it, and be down for a time."""

_LOG = logging.getLogger("tidemark.alerts")


@dataclass(frozen=True)
class RateLimit:
    """The rate limit of one receiver.

    Args:
        max_single_messages: up to this many jobs at once get a message each; more are sent as one digest.
        max_messages: messages in ``per_ms``; later ones wait, and are sent as one.
        per_ms: the period of ``max_messages``.
        first_retry_ms: the pause of a receiver after it failed; it doubles each time.
        max_retry_ms: the longest pause.
    """

    max_single_messages: int = 3
    max_messages: int = 20
    per_ms: int = 600_000
    first_retry_ms: int = 2_000
    max_retry_ms: int = 300_000


@dataclass(frozen=True)
class Receiver:
    """A receiver: its delivery, route and rate limit."""

    delivery: Delivery
    route: Route = field(default_factory=Route)
    rate_limit: RateLimit = RateLimit()


@dataclass
class ReceiverCounts:
    """Counts of messages to one receiver since the process started."""

    sent: int = 0
    failed: int = 0


@dataclass
class _Channel:
    """The state of one receiver: when messages were sent, its failures in a row, and until when it is paused.

    Times are seconds of the monotonic clock.
    """

    sent_at: list[float] = field(default_factory=list)
    failures: int = 0
    paused_until: float = 0.0


Delivered = tuple[str, int, str]
"""A job, the number of its notification, and the receiver that has accepted it, or will never get it."""


def outgoing(notifications: Iterable[Notification], outbox: Iterable[Outgoing], receivers: Mapping[str, Receiver]) -> Iterator[Outgoing]:
    """Yield new notifications with the names of those that get them; ``outbox`` are earlier ones of the job that wait.

    A receiver of another process with a pending notification gets the following ones, too.
    """
    others = tuple(sorted({name for item in outbox for name in item.receivers} - receivers.keys()))
    for notification in notifications:
        own = tuple(name for name, receiver in receivers.items() if for_route(notification, receiver.route) is not None)
        names = own + others
        if names:
            yield Outgoing(notification, names)


def without(outbox: Iterable[Outgoing], job: str, taken: frozenset[Delivered]) -> tuple[Outgoing, ...]:
    """Return a job's outbox without what receivers have accepted."""
    left = (
        replace(item, receivers=tuple(name for name in item.receivers if (job, item.notification.number, name) not in taken))
        for item in outbox
    )
    return tuple(item for item in left if item.receivers)


class DeliveryQueue:
    """Sends to receivers, by name. A process has one queue, used by one thread.

    Args:
        receivers: by name.
        clock: for waiting times.
    """

    def __init__(self, receivers: Mapping[str, Receiver], clock: Clock) -> None:
        self.counts: Mapping[str, ReceiverCounts] = {name: ReceiverCounts() for name in receivers}
        self._receivers = receivers
        self._clock = clock
        self._channels = {name: _Channel() for name in receivers}
        self._warned: set[str] = set()

    def send(self, pending: Iterable[Outgoing], *, may_continue: Callable[[], bool] = lambda: True) -> frozenset[Delivered]:
        """Send pending notifications as far as receivers accept them, and return those that need not be sent any more.

        Args:
            pending: notifications with the receivers that have not accepted them, oldest first per job.
            may_continue: called before each message; False ends the call.
        """
        taken: set[Delivered] = set()
        by_receiver: dict[str, list[Notification]] = {}
        for item in pending:
            for name in item.receivers:
                by_receiver.setdefault(name, []).append(item.notification)
        for name, notifications in sorted(by_receiver.items()):
            if name in self._receivers:
                taken |= self._send_to(name, notifications, may_continue)
            else:
                taken |= self._keep_or_drop(name, notifications)
        return frozenset(taken)

    def _keep_or_drop(self, name: str, notifications: Sequence[Notification]) -> set[Delivered]:
        """Keep notifications for a receiver of another process, until it is clear that no process has it any more."""
        waits_since = min(change.since for item in notifications for change in item.changes)
        if self._clock.now_ms() - waits_since >= KEPT_MS:
            text = "%d alerts for receiver %r are dropped: no process sent them in %s"
            _LOG.warning(text, len(notifications), name, format_duration(KEPT_MS))
            return {(item.job, item.number, name) for item in notifications}
        if name not in self._warned:
            text = "%d alerts wait for receiver %r, which is not configured here; a process with it sends them, after %s they are dropped"
            _LOG.warning(text, len(notifications), name, format_duration(KEPT_MS))
            self._warned.add(name)
        return set()

    def _send_to(self, name: str, notifications: Sequence[Notification], may_continue: Callable[[], bool]) -> set[Delivered]:
        receiver, channel, now = self._receivers[name], self._channels[name], self._clock.monotonic()
        channel.sent_at = [at for at in channel.sent_at if now - at < receiver.rate_limit.per_ms / 1000]
        budget = receiver.rate_limit.max_messages - len(channel.sent_at)
        if now < channel.paused_until or budget <= 0:
            return set()
        by_job: dict[str, list[Notification]] = {}
        for item in notifications:
            by_job.setdefault(item.job, []).append(item)
        taken: set[Delivered] = set()
        pending: list[tuple[Notification, set[Delivered]]] = []
        for job, items in sorted(by_job.items()):
            mine = {(job, item.number, name) for item in items}
            parts = [part for item in items if (part := for_route(item, receiver.route)) is not None]
            if parts:
                pending.append((merged(parts), mine))
            else:
                taken |= mine
        for alert, mine in _messages(pending, min(receiver.rate_limit.max_single_messages, budget)):
            if not may_continue():
                break
            # After a failure the others are tried, too: the receiver may reject only this message.
            if self._deliver(name, alert):
                taken |= mine
        return taken

    def _deliver(self, name: str, alert: Alert) -> bool:
        receiver, channel = self._receivers[name], self._channels[name]
        try:
            receiver.delivery.send(alert)
        except Exception as error:  # noqa: BLE001 - see below
            # A receiver may be user code, and must not stop the supervisor.
            channel.failures += 1
            wait = min(receiver.rate_limit.first_retry_ms * 2 ** min(channel.failures - 1, 30), receiver.rate_limit.max_retry_ms)
            channel.paused_until = self._clock.monotonic() + wait / 1000
            self.counts[name].failed += 1
            text = str(error) if isinstance(error, TidemarkError) else type(error).__name__
            write = _LOG.warning if isinstance(error, AlertError) else _LOG.error
            write(
                "receiver %r failed %d times in a row; next try in %s: %s",
                name,
                channel.failures,
                short_duration(wait),
                redacted(text),
            )
            return False
        channel.failures, channel.paused_until = 0, 0.0
        channel.sent_at.append(self._clock.monotonic())
        self.counts[name].sent += 1
        return True


def _messages(pending: Sequence[tuple[Notification, set[Delivered]]], single: int) -> list[tuple[Alert, set[Delivered]]]:
    if len(pending) <= single:
        return [(message(notification), mine) for notification, mine in pending]
    return [(digest([notification for notification, _ in pending]), set().union(*(mine for _, mine in pending)))]
