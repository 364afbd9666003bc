"""The files of tests that take longest: they come first, since one that begins last leaves the other workers with nothing to do."""

from __future__ import annotations

LONGEST_FILES = (
    "tests/conformance/test_conformance.py",
    "tests/savepoints/test_restore_matrix.py",
    "tests/engine/test_sessions.py",
    "tests/joins/test_prepared_regular.py",
    "tests/autoscaler/test_scaled_driver.py",
    "tests/joins/test_window_join.py",
    "tests/engine/test_reference_agreement.py",
    "tests/engine/test_session_triggers.py",
    "tests/group_aggregate/test_contents.py",
    "tests/verdict/test_migrations.py",
    "tests/postgres/test_crashes.py",
    "tests/object_store/test_spark_on_s3.py",
)
"""Those with more than 75 seconds of a worker, the longest first; a run of many files prints how long each took."""


def place_in_run(file: str) -> int:
    """Return the place of a file of tests among all: by length for the longest, then those of all others, which keep their order."""
    return LONGEST_FILES.index(file) if file in LONGEST_FILES else len(LONGEST_FILES)
