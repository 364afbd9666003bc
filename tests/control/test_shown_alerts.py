"""Alerts that fire are shown by ``tidemark status``, ``list`` and ``top``, with texts as of now."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from tests.control.alert_cases import T0, Mailbox, job_view, watch
from tidemark.cli.program.main import main
from tidemark.cli.show.view_text import list_table, view_text
from tidemark.cli.top.jobs_page import jobs_page
from tidemark.clock import format_ms
from tidemark.control.alerts.delivery.delivery_queue import Receiver
from tidemark.control.alerts.engine.firing_alerts import read_firing_alerts
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.view import AlertView
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

LATE = AlertView("late", "", "error", T0, "12 of 600 rows since the job's first epoch were too late (2.000%)")
LAG = AlertView("lag", "trips", "warn", None, "source 'trips' is 26m behind")


def test_status_has_a_line_for_each_alert() -> None:
    lines = view_text(replace(job_view(), alerts=(LATE, LAG))).splitlines()
    assert f"  alert (error): late since {format_ms(T0)}: {LATE.text}" in lines
    assert f"  alert (warn): lag of trips: {LAG.text}" in lines
    assert "alert" not in view_text(job_view())


def test_tables_count_alerts() -> None:
    views = [replace(job_view("fares"), alerts=(LATE, LAG)), job_view("taxi")]
    head, fares, taxi = (line.split("  ") for line in list_table(views).splitlines())
    assert (head[-1].strip(), fares[-1].strip(), taxi[-1].strip()) == ("alerts", "1 error, 1 warn", "-")
    console = Console(width=200, record=True, file=StringIO())
    console.print(jobs_page(views, {}, title="jobs", width=200))
    assert "1 error, 1 warn" in console.export_text()


def test_the_command_shows_what_the_last_evaluation_found(tmp_path: Path) -> None:
    root, clock = JobStore.open(str(tmp_path)), ManualClock(T0)
    JobClient(root, clock=clock).submit(JobSpec("taxi", "m:j"))
    view = job_view(rows=600, late=12)
    watch(root, clock, {"ops": Receiver(Mailbox())}).evaluate([view])
    (alert,) = read_firing_alerts(root, view)
    assert alert == LATE
    # It still fires, and a text of what is there now would say the opposite.
    assert read_firing_alerts(root, job_view(rows=96_000, late=12)) == (LATE,)
    done = CliRunner().invoke(main, ["status", "taxi", "--json", "--store", str(tmp_path)])
    (shown,) = json.loads(done.stdout)["alerts"]
    assert (shown["rule"], shown["severity"], shown["since"]) == ("late", "error", T0)
    listed = CliRunner().invoke(main, ["list", "--store", str(tmp_path)]).stdout
    assert listed.splitlines()[1].endswith("1 error")
