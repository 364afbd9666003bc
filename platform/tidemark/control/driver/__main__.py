"""The process of a driver that a launcher of this machine starts: ``python -m tidemark.control.driver``; see ``driver``.

The JVM of its session is started before anything else is loaded.
"""

from __future__ import annotations

import os
import sys

from tidemark.spark.env.start.early_java import start_early


def main() -> int:
    """Start the JVM, then load the driver and run it; returns its exit code."""
    start_early(os.environ)
    from tidemark.control.driver.driver import main as drive

    return drive(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
