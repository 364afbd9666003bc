"""A Python function as text that changes when the function does, and stays when only its place in the file changes."""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import textwrap
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from types import CodeType

_PLAIN = (str, bytes, int, float, bool, type(None), Decimal, date, time, timedelta)


def function_text(function: Callable[..., object]) -> str:
    """Return a function's source, with the plain values it closes over and its defaults; not the globals that it reads.

    Without a source (an interactive session, a built-in), its compiled code is used, else its name.

    >>> def double(row):
    ...     return row * 2
    >>> function_text(double) == function_text(double)
    True
    """
    target = inspect.unwrap(function)
    if inspect.ismethod(target):
        target = target.__func__
    if not inspect.isroutine(target) and not inspect.isclass(target):
        # A callable object: its behavior is in its class, its settings are in its fields.
        return f"{_source(type(target))}|{_plain_fields(target)}"
    return f"{_source(target)}|{_bindings(target)}"


def text_hash(text: str) -> str:
    """Return a hash of a text, 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _source(target: object) -> str:
    code = getattr(target, "__code__", None)
    if isinstance(code, CodeType) and code.co_name == "<lambda>":
        text = _lambda_source(code)
        if text is not None:
            return text
    try:
        return textwrap.dedent(inspect.getsource(target)).strip()  # type: ignore[arg-type]
    except (OSError, TypeError):
        name = f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', type(target).__qualname__)}"
        return _code_text(code) if isinstance(code, CodeType) else name


def _lambda_source(code: CodeType) -> str | None:
    """Return a lambda's own text; ``inspect`` gives the lines it stands on, which hold more than it."""
    text = "".join(linecache.getlines(code.co_filename))
    # Instructions that stand for no text have an empty span.
    spans = [(line, column, end, last) for line, end, column, last in code.co_positions() if line and end and last and column is not None]
    found = [node for node in _lambdas(text) if node.lineno == code.co_firstlineno and all(_covers(node.body, *span) for span in spans)]
    # Of lambdas in lambdas, all that enclose the code match; it is the innermost.
    innermost = min(found, key=lambda node: len(ast.get_source_segment(text, node) or ""), default=None)
    return ast.get_source_segment(text, innermost) if innermost else None


def _covers(body: ast.expr, line: int, column: int, end: int, last: int) -> bool:
    return (body.lineno, body.col_offset) <= (line, column) and (end, last) <= (body.end_lineno or 0, body.end_col_offset or 0)


@lru_cache(maxsize=16)
def _lambdas(text: str) -> tuple[ast.Lambda, ...]:
    try:
        return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda))
    except SyntaxError:
        return ()


def _code_text(code: CodeType) -> str:
    constants = [_code_text(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _bindings(target: object) -> str:
    try:
        closed = inspect.getclosurevars(target).nonlocals if inspect.isfunction(target) else {}
    except ValueError:
        # A cell that is filled later, as of a function that calls itself.
        closed = {}
    named = {name: _value(value) for name, value in sorted(closed.items())}
    defaults = [_value(value) for value in getattr(target, "__defaults__", None) or ()]
    keywords = {name: _value(value) for name, value in sorted((getattr(target, "__kwdefaults__", None) or {}).items())}
    return f"{named}|{defaults}|{keywords}"


def _plain_fields(target: object) -> str:
    if hasattr(target, "func") and hasattr(target, "args"):
        return f"{function_text(target.func)}|{[_value(value) for value in target.args]}|{_value(getattr(target, 'keywords', None))}"
    return repr({name: _value(value) for name, value in sorted(vars(target).items())} if hasattr(target, "__dict__") else {})


def _value(value: object) -> str:
    """Return a plain value as text; of others the type only, since their text may differ from process to process."""
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(_value(item) for item in value)})"
    if isinstance(value, dict):
        return f"dict({', '.join(sorted(f'{_value(key)}: {_value(item)}' for key, item in value.items()))})"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(_value, value)))})"
    if inspect.isclass(value):
        return value.__qualname__
    if inspect.isroutine(value) or isinstance(value, partial):
        return function_text(value)
    return type(value).__qualname__
