"""Sets the modes of local files that Spark writes without running a program for each file.

Hadoop sets the mode of every file and folder that it creates on a local disk. Its native library would do that by a system call; no
PySpark wheel has it, and without it Hadoop runs ``chmod`` each time, a quarter of the time of writing a small file. Java can set a mode
by itself: the file system that replaces Hadoop's does so, and is otherwise Hadoop's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from tidemark.spark.compiled_java import java_class

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark.sql import SparkSession

_log = logging.getLogger("tidemark")

_REPLACED: Final = "org.apache.hadoop.fs.RawLocalFileSystem"
FILE_SYSTEM: Final = "tidemark.ModesByCallFileSystem"
FILE_SYSTEM_SOURCE: Final = """
package tidemark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class ModesByCallFileSystem extends RawLocalFileSystem {
  public void setPermission(Path path, FsPermission mode) throws IOException {
    if (mode.getStickyBit()) {
      super.setPermission(path, mode);
    } else {
      Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(mode.toString()));
    }
  }
}
"""


def compile_file_system(jvm: JVMView) -> JavaObject | None:
    """Return the class of the file system, None where it is not needed or cannot be made; it needs no session."""
    try:
        if jvm.org.apache.hadoop.util.NativeCodeLoader.isNativeCodeLoaded():
            return None
        found: JavaObject = java_class(jvm, FILE_SYSTEM, FILE_SYSTEM_SOURCE)
    except (Py4JError, OSError):
        _log.debug("the modes of local files are set as Hadoop does it", exc_info=True)
        return None
    return found


def set_modes_by_call(spark: SparkSession, compiled: Callable[[JVMView], JavaObject | None] = compile_file_system) -> None:
    """Make all sessions of this JVM set the modes of local files by a system call.

    Does nothing where Hadoop's native library is loaded, where ``fs.file.impl`` names another file system, or where a Hadoop release is
    built in another way: Hadoop then sets the modes as usual.

    Args:
        spark: a session.
        compiled: returns the class of the file system, if it is needed.
    """
    try:
        _replace_local_file_system(spark, compiled)
    except Py4JError:
        _log.debug("the modes of local files are set as Hadoop does it", exc_info=True)


def _replace_local_file_system(spark: SparkSession, compiled: Callable[[JVMView], JavaObject | None]) -> None:
    context = spark.sparkContext
    gateway, jvm = context._gateway, context._jvm  # noqa: SLF001
    conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
    if gateway is None or jvm is None or conf.get("fs.file.impl"):
        return
    # The instance in Hadoop's cache, which every reader and writer of this process uses.
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf)
    inner = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("fs")
    inner.setAccessible(True)
    if inner.get(local).getClass().getName() != _REPLACED:
        return
    made = compiled(jvm)
    if made is None:
        return
    constructor = made.getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    replacement = constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
    replacement.initialize(local.getUri(), conf)
    inner.set(local, replacement)
