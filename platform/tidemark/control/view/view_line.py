"""A job in one line: what commands, and operations of the API, show while they wait for it."""

from __future__ import annotations

from tidemark.control.model.view import JobView


def view_line(view: JobView) -> str:
    """Return a job's state in one line; of a failing or dead job with the error that ended its driver."""
    epoch = f", epoch {view.epoch}" if view.epoch is not None else ""
    error = view.error.message if view.error is not None and view.state in {"failing", "dead"} else ""
    why = ": ".join(filter(None, (view.reason, error)))
    return f"{view.job}: {view.state}{epoch}{f' ({why})' if why else ''}"
