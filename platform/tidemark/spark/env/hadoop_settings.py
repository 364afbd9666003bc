"""Removes Hadoop settings that are not used in a session on this machine.

Spark sends Hadoop's settings with every job that reads or writes files, and each task of it reads them again: eleven hundred of them, each
compressed by itself, of which half are YARN's defaults. A session on one machine has no YARN; without its defaults they are 55 kB, not 111,
and take half as long to write and to read, which is milliseconds for each job and task. To leave them out takes a tenth of a second, once.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_log = logging.getLogger("tidemark")

_DEFAULTS: Final = "yarn-default.xml"
_OF_DEFAULTS: Final = "-default.xml"
_REFERENCE: Final = re.compile(r"\$\{([^{}$\s]+)\}")
_LOADS_DEFAULTS: Final = "org.apache.hadoop.mapred.JobConf"
"""The first file that is written loads this class, which adds YARN's defaults to all existing settings."""


def leave_out_yarn(spark: SparkSession) -> None:
    """Stop all sessions of this JVM from sending YARN's defaults with their jobs.

    Settings of the user stay, and so do defaults that these refer to (``${yarn.…}``), directly or by way of others.

    Does nothing where a Hadoop release is built in another way. If Hadoop reads its default files again, since a file system adds
    another one, YARN's are back: jobs then take longer, with the same results.
    """
    try:
        _unset_defaults(spark)
    except (Py4JError, ValueError, LookupError):
        _log.debug("the settings of Hadoop stay as they are", exc_info=True)


def _unset_defaults(spark: SparkSession) -> None:
    context = spark.sparkContext
    jvm, conf = context._jvm, context._jsc.hadoopConfiguration()  # noqa: SLF001
    if jvm is None:
        return
    jvm.java.lang.Class.forName(_LOADS_DEFAULTS)
    # One text has all names and their origins; asking for each takes a second.
    found = jvm.java.io.StringWriter()
    jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(conf, found)
    settings = json.loads(found.toString())["properties"]
    used = _referred_to(conf, [setting["key"] for setting in settings if not setting["resource"].endswith(_OF_DEFAULTS)])
    for setting in settings:
        if setting["resource"] == _DEFAULTS and setting["key"] not in used:
            conf.unset(setting["key"])


def _referred_to(conf: JavaObject, names: Iterable[str]) -> set[str]:
    """Return the settings that Hadoop reads for the values of others: these, and those that they refer to."""
    found: set[str] = set()
    following = set(names)
    while following:
        found |= following
        texts = [conf.getRaw(name) for name in following]
        following = {name for text in texts if text for name in _REFERENCE.findall(text)} - found
    return found
