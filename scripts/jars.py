"""Downloads what the tests of Kafka and of Spark on S3 need, pinned: ``python scripts/jars.py``, in the project's folder.

It makes ``.jars/broker``, a broker (``broker-jars.txt``), ``.jars/connector``, Spark's connector and its reader of Avro, and ``.jars/s3``,
Hadoop's connector for S3.
``$TIDEMARK_MAVEN_REPOSITORY`` names another repository than Maven Central.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidemark.errors import SetupError
from tidemark.spark.env.connector_jars import CONNECTORS, Jar, download

BROKER = Path(__file__).with_name("broker-jars.txt")
FOLDER = Path(".jars")


def broker_jars(text: str) -> tuple[Jar, ...]:
    r"""Return the jars of a list: lines of ``group:name:version sha256``, and comments.

    >>> broker_jars("# none\na.b:c:1 00ff\n")
    (Jar(group='a.b', name='c', version='1', sha256='00ff'),)
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(Jar(*line.replace(" ", ":").split(":")) for line in lines)


def main() -> int:
    """Download the jars that are not there yet."""
    wanted = {
        "broker": broker_jars(BROKER.read_text(encoding="utf-8")),
        "connector": CONNECTORS["kafka"] + CONNECTORS["avro"],
        "s3": CONNECTORS["s3"],
    }
    try:
        for name, jars in wanted.items():
            found = download(jars, FOLDER / name)
            print(f"{FOLDER / name}: {len(found)} jars")
    except SetupError as error:
        print(f"scripts/jars: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
