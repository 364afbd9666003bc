"""Limits of Avro's reader: it allocates what a length says before it reads it, and lengths in a broken record are arbitrary.

Without limits a record of ten bytes ends the JVM for lack of memory, and so each attempt to read it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

AVRO_LIMITS: Final[Mapping[str, int]] = {
    "org.apache.avro.limits.string.maxLength": 64 * 1024 * 1024,
    "org.apache.avro.limits.bytes.maxLength": 64 * 1024 * 1024,
    "org.apache.avro.limits.collectionItems.maxLength": 16 * 1024 * 1024,
}
"""The greatest lengths, in bytes and items, by Java's property."""

EXECUTOR_OPTIONS: Final = "spark.executor.defaultJavaOptions"
"""Spark puts these options before those of ``spark.executor.extraJavaOptions``, which so override them."""


def executor_options() -> str:
    """Return the Java options of executors."""
    return " ".join(f"-D{name}={most}" for name, most in AVRO_LIMITS.items())


@lru_cache(maxsize=1)
def limit_avro(spark: SparkSession) -> None:
    """Set the limits in the driver's JVM, where they are not set; Avro looks at them once, when it is first used."""
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # noqa: SLF001
    for name, most in AVRO_LIMITS.items():
        if system.getProperty(name) is None:
            system.setProperty(name, str(most))
