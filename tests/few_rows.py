"""Settings of sessions that see a few rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidemark.spark.env.class_archive import archive_options
from tidemark.spark.env.start.session_settings import LOCAL
from tidemark.spark.env.start_errors import JAVA_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Half of the processor time went into the JVM's second compiler; without it, the first one needs the room of both. For a few rows,
# compiling a plan costs more than it saves, too.
FEW_ROWS = {
    JAVA_OPTIONS: f"{LOCAL[JAVA_OPTIONS]} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m {archive_options()}".rstrip(),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Measured 8 % of a test's time; it saves reading rows, of which there are few.
    "spark.sql.constraintPropagation.enabled": "false",
    # For pages that nobody opens, Spark keeps a thousand of each, and collections of garbage go through all of them.
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
}

_OF_OTHERS = (
    *("fs.adl.", "fs.azure.", "fs.ftp.", "fs.s3a.", "fs.viewfs."),
    *("ha.", "ipc.", "net.topology.", "rpc.", "hadoop.http.", "hadoop.kerberos.", "hadoop.registry.", "hadoop.rpc.", "hadoop.security."),
    *("hadoop.ssl.", "hadoop.zk.", "io.erasurecode.", "io.seqfile.", "yarn."),
    *("mapreduce.client.", "mapreduce.job.", "mapreduce.jobhistory.", "mapreduce.map.", "mapreduce.reduce.", "mapreduce.shuffle."),
    "mapreduce.task.",
)
"""Settings of Hadoop for servers, clusters and file systems that sessions of tests do not have."""


def leave_out_defaults_of_others(spark: SparkSession) -> None:
    """Remove Hadoop's defaults for what these sessions do not have; each job writes all settings, and each of its tasks reads them.

    They were seven of ten settings, and a tenth of the JVM's time in jobs over a few rows.
    """
    context: Any = spark.sparkContext
    conf, found = context._jsc.hadoopConfiguration(), context._jvm.java.io.StringWriter()  # noqa: SLF001
    context._jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(conf, found)  # noqa: SLF001
    for setting in json.loads(found.toString())["properties"]:
        if setting["resource"].endswith("-default.xml") and setting["key"].startswith(_OF_OTHERS):
            conf.unset(setting["key"])


_UNCOUNTED = """
public class Uncounted extends java.util.concurrent.ConcurrentHashMap {
  public Object compute(Object rule, java.util.function.BiFunction change) {
    return Long.valueOf(0L);
  }
}
"""


def leave_out_counts_of_rules(spark: SparkSession) -> None:
    """Have Spark not count how often each rule of its planner runs, and for how long: before and after each plan it adds all of them up.

    That was a fourteenth of the JVM's time in jobs over a few rows.
    """
    _keep_counts_of_rules(spark.sparkContext._jvm, lambda: _instance_of(spark, "Uncounted", _UNCOUNTED))  # noqa: SLF001


def _instance_of(spark: SparkSession, name: str, code: str) -> Any:
    """Compile a class of Java's in the JVM; return an instance."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(code)
    constructor = compiler.getClassLoader().loadClass(name).getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))


_NAMED = """
public class Named extends InheritableThreadLocal {
  private static java.util.Properties named() {
    java.util.Properties site = new java.util.Properties();
    site.setProperty("callSite.short", "test");
    site.setProperty("callSite.long", "test");
    return new java.util.Properties(site);
  }
  protected Object initialValue() {
    return named();
  }
  protected Object childValue(Object parent) {
    java.util.Properties child = named();
    child.putAll((java.util.Properties) parent);
    return child;
  }
}
"""


def leave_out_call_sites(spark: SparkSession) -> None:
    """Have Spark not look for the place in the code that each of its data sets and jobs comes from, which it shows on pages of its own.

    It took the stack of the thread for each, and compared all names in it: a fiftieth of the JVM's time in jobs over a few rows.
    """
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001
    places = context.getClass().getDeclaredField("localProperties")
    places.setAccessible(True)
    places.set(context, _instance_of(spark, "Named", _NAMED))


@contextmanager
def counted_rules(spark: SparkSession) -> Iterator[None]:
    """Have Spark count them while the block runs, from zero."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    _keep_counts_of_rules(jvm, jvm.java.util.concurrent.ConcurrentHashMap)
    try:
        yield
    finally:
        leave_out_counts_of_rules(spark)


def _keep_counts_of_rules(jvm: Any, new_map: Callable[[], Any]) -> None:
    """Have Spark keep its counts in new maps."""
    counted = getattr(getattr(jvm, "org.apache.spark.sql.catalyst.rules.RuleExecutor$"), "MODULE$").queryExecutionMeter()
    for name in ("timeMap", "numRunsMap", "numEffectiveRunsMap", "timeEffectiveRunsMap"):
        field = counted.getClass().getDeclaredField(name)
        field.setAccessible(True)
        counts = field.get(counted)
        kept = counts.getClass().getDeclaredField("map")
        kept.setAccessible(True)
        kept.set(counts, new_map())


def compiling(spark: SparkSession) -> SparkSession:
    """Return a new session on the same context that plans and compiles as a job's does."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "true")
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    session.conf.set("spark.sql.constraintPropagation.enabled", "true")
    return session
