"""Spares PySpark's calls to the JVM what it does again and again: looking up classes by their names, and looking for NumPy.

PySpark asks the JVM for ``functions`` or ``PythonUtils`` each time that it makes a column; of a name without a package Java searches all
jars in vain, package by package, before it finds the class. That was a sixth of what the JVM did to plan an epoch. A class stays what it
is while its JVM runs, and so do its static methods.

It also asks of each argument of a call whether it is NumPy's, and at the first one loads its own test tools to find out whether NumPy is
installed, and with them pandas and more: a third of a second of each start. Where NumPy is not loaded, nothing is its object.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from py4j import protocol
from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

if TYPE_CHECKING:
    from py4j.java_gateway import JavaClass, JVMView
    from pyspark import SparkContext

_log = logging.getLogger("tidemark")

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

_PACKAGES: Final = ("org", "java", "scala")
"""Packages that are asked for others and for classes, part by part."""

_OTHERS: Final = ("org.apache.spark.sql.Observation", "org.apache.spark.sql.classic.SparkSession")
"""Classes of which instances are made."""


_INITIALIZED: Final = (
    "org.apache.spark.sql.ml.InternalFunctionRegistration$",
    "org.apache.spark.sql.catalyst.parser.SqlBaseLexer",
    "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
)
"""Classes that a session needs and that take long to initialize: Scala's reflection, the texts of all errors, all functions; the tables of
the parser. None of them needs Spark's context."""


def initialize_java_classes(jvm: JVMView) -> None:
    """Have the JVM initialize classes that a session needs, for another thread while Spark's context starts in the JVM.

    A name that this Spark does not have is passed over.
    """
    for name in _INITIALIZED:
        try:
            jvm.java.lang.Class.forName(name)
        except (Py4JError, OSError):
            _log.debug("%s is initialized with the session", name, exc_info=True)


_GENERATED: Final = """
public Object generate(Object[] references) { return new Generated(references); }
static final class Generated {
  private final Object[] references;
  Generated(Object[] references) { this.references = references; }
}
"""


def load_compiler(jvm: JVMView) -> None:
    """Have the JVM load Spark's compiler for generated code, for another thread while a job's log is read.

    For the values of an observation Spark generates a class whatever the session's settings, so that the first pass would wait for it.
    """
    try:
        jvm.org.codehaus.janino.ClassBodyEvaluator().cook(_GENERATED)
    except (Py4JError, OSError):
        _log.debug("the compiler is loaded with the first pass", exc_info=True)


class _KnownMethods:
    """A class of the JVM with the static methods that it was asked for."""

    def __init__(self, java_class: JavaClass) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> object:
        # Called for what is not there yet.
        found = getattr(self._java_class, name)
        setattr(self, name, found)
        return found


class _KnownPackage:
    """A package of the JVM with the classes that it was asked for, and the packages in which there was one.

    Of a name that is not there py4j says that it is a package; a jar may bring a class of that name.
    """

    def __init__(self, package: JavaPackage, parent: _KnownPackage | None = None, name: str = "") -> None:
        self._package, self._parent, self._name = package, parent, name

    def __getattr__(self, name: str) -> object:
        # Called for what is not there yet.
        found = getattr(self._package, name)
        if isinstance(found, JavaPackage):
            return _KnownPackage(found, self, name) if name.islower() else found
        setattr(self, name, found)
        self._keep()
        return found

    def __call__(self, *_: object) -> NoReturn:
        # By this text libraries know that a jar is missing.
        raise TypeError("'JavaPackage' object is not callable")

    def _keep(self) -> None:
        """Have the packages around this one know it: there is a class in it."""
        if self._parent is not None:
            setattr(self._parent, self._name, self)
            self._parent._keep()  # noqa: SLF001


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
    for name in _PACKAGES:
        setattr(view, name, _KnownPackage(getattr(view, name)))


def recognize_numpy_without_pandas() -> None:
    """Have PySpark recognize arguments of NumPy's in this process without its test tools; at the second call nothing is done."""
    for converter in protocol.INPUT_CONVERTER:
        kind = type(converter)
        if kind is NumpyScalarConverter:
            converter.can_convert = _is_scalar
        elif kind is NumpyArrayConverter:
            converter.can_convert = _is_array


def _is_scalar(given: object) -> bool:
    return isinstance(given, _of_numpy("generic"))


def _is_array(given: object) -> bool:
    return isinstance(given, _of_numpy("ndarray")) and getattr(given, "ndim", 0) == 1


def _of_numpy(name: str) -> type | tuple[()]:
    """Return a class of NumPy's; none while NumPy is not loaded, or another thread is loading it: then nothing is an instance of it."""
    return getattr(sys.modules.get("numpy"), name, ())
