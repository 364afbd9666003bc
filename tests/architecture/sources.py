"""The project's source files as the architecture tests see them: import name, path, imports, what they call and look up.

A syntax tree has thirty objects for each line, which each later collection of garbage goes through: of a file only texts are kept.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Import:
    """One import: the module, the name taken from it (none for a plain import), its line, and whether only type checkers run it."""

    module: str
    name: str | None
    line: int
    type_checking: bool


@dataclass(frozen=True, slots=True)
class Use:
    """A name that is called or looked up.

    ``name`` is a chain of names: ``time.sleep``; of a call on anything else, the last part alone: ``.sleep``.
    ``argument`` is the first argument of a call if that is a text.
    """

    name: str
    line: int
    argument: str | None = None

    @property
    def last(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Source:
    """One file: ``module`` is its import name, ``lines`` their number; ``has_code`` if there is more in it than one statement.

    ``classes_with_code`` are the lines and names of classes whose attribute ``code`` is an error's.
    """

    path: Path
    module: str
    lines: int
    has_code: bool
    imports: tuple[Import, ...]
    attributes: tuple[Use, ...]
    calls: tuple[Use, ...]
    classes_with_code: tuple[tuple[int, str], ...]

    @property
    def place(self) -> str:
        """The path from the top of the checkout."""
        return str(self.path.relative_to(CHECKOUT))


def package_places() -> dict[str, Path]:
    """Return the folder of each package that pyproject.toml maps to a place of its own."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    return {package: CHECKOUT / place for package, place in settings["tool"]["setuptools"]["package-dir"].items()}


@cache
def package_sources() -> tuple[Source, ...]:
    """Return every file of the import package ``tidemark``."""
    return tuple(
        read_source(path, _module_name(package, folder, path))
        for package, folder in package_places().items()
        for path in sorted(folder.rglob("*.py"))
    )


@cache
def all_sources() -> tuple[Source, ...]:
    """Return every Python file of the project: the package, examples, benchmarks, scripts and tests."""
    others = (
        read_source(path, ".".join(path.relative_to(CHECKOUT).with_suffix("").parts))
        for folder in ("examples", "benchmarks", "scripts", "tests")
        for path in sorted((CHECKOUT / folder).rglob("*.py"))
    )
    return (*package_sources(), *others)


def read_source(path: Path, module: str) -> Source:
    """Return a file with its imports; relative imports are refused elsewhere, so they do not occur."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, filename=str(path))
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return Source(
        path=path,
        module=module,
        lines=len(text.splitlines()),
        has_code=len(tree.body) > 1,
        imports=tuple(_imports(nodes)),
        attributes=tuple(
            Use(name, node.lineno) for node in nodes if isinstance(node, ast.Attribute) and not (name := _name(node)).startswith(".")
        ),
        calls=tuple(Use(name, call.lineno, _first_text(call)) for call in calls if (name := _name(call.func))),
        classes_with_code=tuple((node.lineno, node.name) for node in nodes if isinstance(node, ast.ClassDef) and _has_code(node)),
    )


def _name(node: ast.expr) -> str:
    """Return the name that an expression is, as ``Use`` has it; empty where it is none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        return sys.intern(".".join((node.id, *reversed(parts))))
    return sys.intern(f".{parts[0]}") if parts else ""


def _first_text(call: ast.Call) -> str | None:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _has_code(class_: ast.ClassDef) -> bool:
    lines = (line for line in class_.body if isinstance(line, ast.Assign | ast.AnnAssign))
    return any(re.match(r"code\b.*= 'TM\d{3}'", ast.unparse(line)) for line in lines)


def _module_name(package: str, folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((package, *(part for part in parts if part != "__init__")))


def _imports(nodes: Sequence[ast.AST]) -> list[Import]:
    guarded = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and _name(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [Import(alias.name, None, node.lineno, id(node) in guarded) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [Import(module, alias.name, node.lineno, id(node) in guarded) for alias in node.names]
    return found
