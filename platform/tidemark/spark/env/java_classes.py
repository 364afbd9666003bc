"""Keeps the classes of the JVM by their names, as PySpark asks for them with every column and frame.

PySpark asks the JVM for ``functions`` or ``PythonUtils`` each time that it makes a column; of a name without a package Java searches all
jars in vain, package by package, before it finds the class. That was a sixth of what the JVM did to plan an epoch. A class stays what it
is while its JVM runs, and so do its static methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from py4j.java_gateway import JavaClass
    from pyspark import SparkContext

_OF_METHODS: Final = (
    "functions",
    "org.apache.spark.sql.functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.expressions.Window",
)
"""Classes that are asked for static methods and objects only, by the names that PySpark uses."""

_OTHERS: Final = ("org.apache.spark.sql.Observation", "org.apache.spark.sql.classic.SparkSession")
"""Classes of which instances are made."""


class _KnownMethods:
    """A class of the JVM with the static methods that it was asked for."""

    def __init__(self, java_class: JavaClass) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> object:
        # Called for what is not there yet.
        found = getattr(self._java_class, name)
        setattr(self, name, found)
        return found


def keep_java_classes(context: SparkContext) -> None:
    """Have PySpark find the classes that it uses for columns and frames without the JVM; at the second call nothing is done.

    Args:
        context: the running one. Another that starts in the same JVM has them, too.
    """
    view = context._jvm  # noqa: SLF001
    if view is None or _OF_METHODS[0] in vars(view):
        return
    # What an object has itself it is not asked for by __getattr__, which is where py4j asks the JVM.
    found = {name: getattr(view, name) for name in (*_OF_METHODS, *_OTHERS)}
    for name, java_class in found.items():
        setattr(view, name, _KnownMethods(java_class) if name in _OF_METHODS else java_class)
