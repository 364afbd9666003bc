"""The project's source files as the architecture tests see them: import name, path, syntax tree, imports."""

from __future__ import annotations

import ast
import tomllib
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


@dataclass(frozen=True)
class Source:
    """One file: ``module`` is its import name."""

    path: Path
    module: str
    tree: ast.Module
    imports: tuple[Import, ...]

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
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return Source(path=path, module=module, tree=tree, imports=tuple(_imports(tree)))


def _module_name(package: str, folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((package, *(part for part in parts if part != "__init__")))


def _imports(tree: ast.Module) -> list[Import]:
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, None, node.lineno, id(node) in guarded) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found += [Import(module, alias.name, node.lineno, id(node) in guarded) for alias in node.names]
    return found
