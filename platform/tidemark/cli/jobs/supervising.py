"""``tidemark supervise``: keeps the jobs of a store running, sends alerts, serves metrics."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from tidemark.cli.program.command_groups import TEMPORARY
from tidemark.cli.program.console_log import log_to_console
from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import DURATION, open_store, store_option
from tidemark.cli.web.ui import access_options, ui_server
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.autoscaler.autoscaler import Autoscaler
from tidemark.control.launch.launchers import any_driver_ended, launchers_here
from tidemark.control.reconcile.reconciler import ReconcileReport
from tidemark.control.supervise.supervisor import OnPass, Supervisor
from tidemark.control.upgrade.upgrade_worker import upgrading_reconciler
from tidemark.control.view.view_builder import views_of

if TYPE_CHECKING:
    from types import FrameType

    from tidemark.control.metrics.metric_registry import MetricRegistry
    from tidemark.control.supervise.alert_reporter import AlertReporter

logger = logging.getLogger("tidemark")


@click.command(cls=DocumentedCommand, examples=("tidemark supervise", "tidemark supervise --alerts alerts.toml --metrics 9464 --ui 8787"))
@store_option
@click.option("--every", type=DURATION, default="5 seconds", show_default=True, help="Interval between passes.")
@click.option("--alerts", default=None, type=click.Path(dir_okay=False), help="TOML file of alert receivers.  [default: no alerts]")
@click.option("--metrics", default=None, metavar="[HOST:]PORT", help="Address for Prometheus, such as 9464; loopback without a host.")
@click.option(
    "--ui", default=None, metavar="[HOST:]PORT", help="Address for the page and the API (`tidemark ui`); loopback without a host."
)
@access_options
@click.option("--once", is_flag=True, help="Make one pass and end, for a scheduler that calls it again.")
def supervise(
    store: str | None,
    every: int,
    alerts: str | None,
    metrics: str | None,
    *,
    ui: str | None,
    token_file: str | None,
    host_names: tuple[str, ...],
    once: bool,
) -> None:
    """Keep the jobs of a store running, until SIGINT or SIGTERM.

    Drivers keep running when it ends. Several may run at once, on one machine or on many: a lease makes one of them act on a job.
    """
    from tidemark.control.alerts.delivery.alert_config import load_alert_config
    from tidemark.control.metrics.metric_registry import MetricRegistry
    from tidemark.control.metrics.metric_server import listen_address, serve_metrics
    from tidemark.control.supervise.alert_reporter import AlertReporter

    if ui is None and (token_file is not None or host_names):
        raise click.UsageError("--token-file and --host-name are for the page and the API, which --ui PORT serves")
    log_to_console()
    root = open_store(store)
    # Without a file this process sends no alerts: another watcher of the store, such as Dagster's sensor, has its own receivers.
    config = load_alert_config(alerts) if alerts is not None else None
    stop, registry = threading.Event(), MetricRegistry()
    launchers = launchers_here()
    reconciler = upgrading_reconciler(root, launchers, SYSTEM_CLOCK)
    with ExitStack() as open_:
        if metrics is not None:
            host, port = listen_address(metrics)
            server = serve_metrics(registry, port, host=host)
            open_.callback(server.close)
            logger.info("metrics at %s", server.url)
        if ui is not None:
            page = ui_server(root, *listen_address(ui), token_file, host_names)
            open_.callback(page.close)
            page.start()
            logger.info("jobs at %s", page.url)
        reporter = None
        if config is not None:
            reporter = open_.enter_context(AlertReporter(root, config, registry, holder=reconciler.holder))
        supervisor = Supervisor(
            reconciler,
            stop,
            interval_ms=every,
            on_pass=_pass_callback(registry, reporter),
            autoscaler=Autoscaler(root),
            driver_ended=lambda: any_driver_ended(launchers),
        )
        with _stopped_by_signals(stop):
            logger.info("supervises the jobs of %s as %s", root.uri, reconciler.holder)
            if not once:
                supervisor.run()
            elif supervisor.pass_once() is None:
                click.get_current_context().exit(TEMPORARY)
            logger.info("ends; drivers keep running")


def _pass_callback(registry: MetricRegistry, reporter: AlertReporter | None) -> OnPass:
    """Return the callback that publishes a pass as metrics and, with a reporter, sends alerts."""
    from tidemark.control.metrics.metric_registry import MetricSnapshot

    def on_pass(report: ReconcileReport, seconds: float) -> None:
        if reporter is not None:
            reporter.submit(report.observations, report.errors, seconds=seconds)
        else:
            now = SYSTEM_CLOCK.now_ms()
            registry.publish(MetricSnapshot(views_of(report.observations, report.errors, now), passed_at=now, pass_seconds=seconds))

    return on_pass


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the supervisor after the current job; a second one has the signal's usual effect."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
