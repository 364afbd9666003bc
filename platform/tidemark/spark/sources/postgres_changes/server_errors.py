"""What is wrong where the server refuses to be read, and what to do."""

from __future__ import annotations

from typing import Final

from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.savepoints.database.session import DatabaseError

_IN_USE: Final = "55006"
_NO_SLOTS: Final = "53400"
_DENIED: Final = "42501"
_MISSING: Final = "42704"
_STATE: Final = "55000"
_CANCELLED: Final = "57014"

RESTART: Final = (
    "give the source another name: it then begins with a new snapshot; and drop its replication slot, which keeps the server's log"
)
"""What to do where changes were lost."""


def again(error: DatabaseError) -> bool:
    """Return whether the same call may succeed in a moment: the connection was lost, or another one reads the slot."""
    return error.state == _IN_USE or (error.lost and error.state != _CANCELLED)


def explained(error: DatabaseError, spec: PostgresChangesSpec) -> tuple[str, str]:
    """Return what is wrong and what to do, for an error of the server."""
    if error.state == _IN_USE:
        return (
            f"another connection reads its replication slot: {error.what}",
            "end the other reader: each source needs a slot of its own, and one driver reads it",
        )
    if error.state == _NO_SLOTS:
        return (
            f"the server has no free replication slot: {error.what}",
            "raise max_replication_slots, which needs a restart, or drop a slot that nothing reads (pg_replication_slots)",
        )
    if error.state == _DENIED:
        return (
            f"the user of {spec.dsn_env} may not do that: {error.what}",
            "ALTER ROLE ... REPLICATION, GRANT SELECT on the tables; or give publication= and slot=, which their owners created",
        )
    if error.state == _MISSING:
        return f"what it reads is missing: {error.what}", f"create it again; if changes were made since: {RESTART}"
    if error.state == _STATE:
        return f"its replication slot cannot be read: {error.what}", f"if the slot is lost or invalid: {RESTART}"
    return _of_user(error, spec)


def _of_user(error: DatabaseError, spec: PostgresChangesSpec) -> tuple[str, str]:
    if error.state == _CANCELLED:
        return f"the server ended a statement: {error.what}", "raise the user's limit: ALTER ROLE ... SET statement_timeout = 0"
    if error.state.startswith("28"):
        return f"the server refuses the user: {error.what}", f"correct the user and the password in {spec.dsn_env}"
    if error.lost:
        return (
            f"the server cannot be reached: {error.what}",
            f"check that it runs and can be reached from this machine, and the connection string in {spec.dsn_env}",
        )
    return f"the server refuses a statement: {error.what}", "repair that, and start the job again"
