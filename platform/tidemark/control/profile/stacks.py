"""Sampled stacks: how often each was seen. Read from what JFR and py-spy print. Pure.

The text form is that of collapsed stacks, one a line: frames from the root on, separated by semicolons, a space, and the count. Other
tools read it, too, such as speedscope.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

Stack = tuple[str, ...]
"""The names of frames, from the root on."""

_THREAD: Final = re.compile(r'\s*sampledThread = "(?P<name>.*)" \(')
_LOCATION: Final = re.compile(r"\s+line: \d+\s*$")
_ARGUMENTS: Final = re.compile(r"\(.*\)$")
_NUMBERS: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+(?:\.\d+)*")
_PROCESS: Final = re.compile(r'process (?P<pid>\d+):"(?P<command>.*?)";', re.DOTALL)
_OPEN: Final = re.compile(r'process \d+:"')
_PYTHON_FRAME: Final = re.compile(r"(?:.*\.)?(?P<function>[^. ]+) \((?:.*/)?(?P<file>[^/]+\.py)(?::\d+)?\)$")
_WAITING: Final = frozenset(
    (
        ("wait", "threading.py"),
        ("_wait_for_tstate_lock", "threading.py"),
        ("get", "queue.py"),
        ("select", "selectors.py"),
        ("accept", "socket.py"),
        ("readinto", "socket.py"),
        # PySpark's and py4j's own, and this package's wait for signals.
        ("manager", "daemon.py"),
        ("poll", "accumulators.py"),
        ("run", "clientserver.py"),
        ("run", "java_gateway.py"),
        ("_taken", "interrupts.py"),
    )
)
"""Functions that wait for a lock, a socket or a process, by their files."""

_COUNT: Final = re.compile(r" (\d+)$")


def java_stacks(lines: Iterable[str]) -> Counter[Stack]:
    """Return the stacks of ``jfr print --events jdk.ExecutionSample``; their roots are threads, whose numbers are left out.

    Args:
        lines: what it prints.
    """
    found = Counter[Stack]()
    thread, frames, inside = "", list[str](), False
    for line in lines:
        text = line.strip()
        if match := _THREAD.match(line):
            thread = _NUMBERS.sub("*", match["name"])
        elif text.startswith("stackTrace = ["):
            frames, inside = [], True
        elif inside and text == "]":
            found[(thread, *reversed(frames))] += 1
            thread, inside = "", False
        elif inside and text != "...":
            frames.append(_ARGUMENTS.sub("", _LOCATION.sub("", text)))
    return found


def python_stacks(text: str, names: Mapping[int, str], *, other: str) -> Counter[Stack]:
    """Return the stacks of ``py-spy record --format raw --subprocesses``; their roots are processes by name.

    The commands of processes, whose arguments may be secret, are left out.

    Args:
        text: what it wrote.
        names: of processes by their ids.
        other: the name of all other processes.
    """
    found = Counter[Stack]()
    for line in _whole_lines(text):
        count = _COUNT.search(line)
        if count is None:
            continue
        stack, pid = line[: count.start()], None
        while match := _PROCESS.match(stack):
            pid, stack = int(match["pid"]), stack[match.end() :]
        found[(names.get(pid, other) if pid is not None else other, *stack.split(";"))] += int(count[1])
    return found


def without_waiting(stacks: Mapping[Stack, int]) -> Counter[Stack]:
    """Return the stacks of Python whose last function works.

    py-spy takes a thread that waits for one that works now and then, since its own look interrupts the waiting.
    """
    return Counter({stack: count for stack, count in stacks.items() if not _waits(stack[-1])})


def _waits(frame: str) -> bool:
    found = _PYTHON_FRAME.match(frame)
    return found is not None and (found["function"], found["file"]) in _WAITING


def _whole_lines(text: str) -> Iterator[str]:
    """Yield lines; one whose command of a process has line breaks is one line."""
    pending = ""
    for line in text.splitlines():
        pending = f"{pending}\n{line}" if pending else line
        if not _OPEN.match(_PROCESS.sub("", pending)):
            yield pending
            pending = ""
    if pending:
        yield pending


def collapsed(stacks: Mapping[Stack, int]) -> str:
    """Return stacks as text, sorted; semicolons and line breaks in names are replaced."""
    lines = (f"{';'.join(_in_one_line(frame) for frame in stack)} {count}" for stack, count in stacks.items())
    return "".join(f"{line}\n" for line in sorted(lines))


def _in_one_line(frame: str) -> str:
    return " ".join(frame.replace(";", ",").split()) or "-"


def busiest(stacks: Mapping[Stack, int], *, most: int = 10) -> list[tuple[str, int, int]]:
    """Return the functions with most samples of their own: name, these samples, and all samples in which they were on the stack.

    >>> busiest({("main", "f", "g"): 3, ("main", "f"): 2})
    [('g', 3, 3), ('f', 2, 5)]
    """
    own, total = Counter[str](), Counter[str]()
    for stack, count in stacks.items():
        own[stack[-1]] += count
        for frame in set(stack):
            total[frame] += count
    return [(name, count, total[name]) for name, count in own.most_common(most)]
