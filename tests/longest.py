"""The files of tests that take longest: they come first, since one that begins last leaves the other workers with nothing to do."""

from __future__ import annotations

LONGEST_FILES = (
    "tests/conformance/test_conformance.py",
    "tests/savepoints/test_restore_matrix.py",
    "tests/crash/test_every_point.py",
    "tests/engine/test_sessions.py",
    "tests/engine/test_reference_agreement.py",
    "tests/dagster/test_stream_driver.py",
    "tests/kafka/test_sink_publications.py",
    "tests/joins/test_prepared_elements.py",
    "tests/savepoints/test_golden_savepoints.py",
    "tests/engine/test_prepared_passes.py",
    "tests/crash/test_windows.py",
    "tests/verdict/test_migrations.py",
    "tests/object_store/test_spark_on_s3.py",
    "tests/autoscaler/test_scaled_driver.py",
    "tests/joins/test_interval_programs.py",
    "tests/dagster/test_web_ui.py",
)
"""Those with more than 65 seconds of a worker, the longest first; a run of many files prints how long each took."""


def place_in_run(file: str) -> int:
    """Return the place of a file of tests among all: by length for the longest, then those of all others, which keep their order."""
    return LONGEST_FILES.index(file) if file in LONGEST_FILES else len(LONGEST_FILES)
