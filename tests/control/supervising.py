"""A supervisor of drivers without Spark, as a program: ``python -m tests.control.supervising STORE FOLDER``; it logs to standard error."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

from tests.control.sparkless_driver import SparklessLauncher
from tidemark.control.supervise.supervisor import Supervisor
from tidemark.control.upgrade.upgrade_worker import upgrading_reconciler
from tidemark.state.store.store import JobStore

INTERVAL_MS = 300


def main(store: str, folder: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    reconciler = upgrading_reconciler(JobStore.open(store), {"local": SparklessLauncher(Path(folder))})
    Supervisor(reconciler, threading.Event(), interval_ms=INTERVAL_MS).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
