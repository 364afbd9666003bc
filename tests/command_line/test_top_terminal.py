"""``tidemark top`` in a real pseudo terminal, with keys; and without one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.command_line.test_top_pages import epoch
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.spec import JobSpec
from tidemark.state.status.history import HistoryWriter
from tidemark.state.store.store import JobStore

PROGRAM = (sys.executable, "-c", "from tidemark.cli.program.main import main; main()")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Screen:
    """A program in a pseudo terminal, and what it wrote since it was last asked."""

    process: subprocess.Popen[bytes]
    terminal: int
    raw: bytes = b""
    _pressed_at: int = 0

    @property
    def text(self) -> str:
        """What was written since the last key, without colours and movements."""
        return ANSI.sub("", self.raw[self._pressed_at :].decode("utf-8", "replace"))

    def press(self, keys: bytes) -> None:
        self._pressed_at = len(self.raw)
        os.write(self.terminal, keys)

    def wait_for(self, *parts: str, seconds: float = 30) -> None:
        end = SYSTEM_CLOCK.monotonic() + seconds
        while not all(part in self.text for part in parts):
            assert SYSTEM_CLOCK.monotonic() < end, f"{parts} not in {self.text[-3000:]!r}"
            self.read(0.2)

    def read(self, seconds: float) -> None:
        if select.select([self.terminal], [], [], seconds)[0]:
            try:
                found = os.read(self.terminal, 65_536)
            except OSError:  # the program has ended
                found = b""
            self.raw += found

    def ended(self, seconds: float = 30) -> int:
        """Wait for the end, reading what is still written; return the exit code."""
        end = SYSTEM_CLOCK.monotonic() + seconds
        while self.process.poll() is None:
            assert SYSTEM_CLOCK.monotonic() < end, "it does not end"
            self.read(0.1)
        return self.process.wait()


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    """Three jobs that nothing runs, one with epochs."""
    root = JobStore.open(str(tmp_path / "store"))
    for name in ("bikes", "fares", "rides"):
        JobClient(root, "ada").submit(JobSpec(name, f"{name}:job", wanted="suspended"))
    history = HistoryWriter(root, "fares")
    for number, late in enumerate((0, 3, 0, 9)):
        history.append(epoch(number, at=1_000 * number, late=late))
    return root


@pytest.fixture
def screens(store: JobStore) -> Iterator[list[Screen]]:
    del store
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        if screen.process.poll() is None:
            screen.process.kill()
            screen.process.wait()
        os.close(screen.terminal)


def open_top(
    screens: list[Screen], store: JobStore, *words: str, size: tuple[int, int] = (24, 120), program: Sequence[str] = PROGRAM
) -> tuple[Screen, list[object]]:
    """Start ``top`` in a terminal of so many lines and characters; return it, and the terminal's settings before."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    before = termios.tcgetattr(theirs)
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    environment = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}}
    process = subprocess.Popen(
        [*program, "top", *words, "--store", store.uri, "--every", "100 ms"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
        # Where the tests run under nohup, it would be ignored in the program, too.
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - no other thread waits for a lock
    )
    os.close(theirs)
    screens.append(Screen(process, ours))
    return screens[-1], before


def test_keys_select_open_and_quit(store: JobStore, screens: list[Screen]) -> None:
    screen, before = open_top(screens, store)
    screen.wait_for("bikes", "fares", "rides", "select", "quit")
    assert b"\x1b[?1049h" in screen.raw, "it has a screen of its own, so that what was there before returns"
    screen.press(b"\x1b[B\r")
    screen.wait_for("fares: stopped", "late", "9 rows, at most 9", "all jobs")
    screen.press(b"\x1b[C")
    screen.wait_for("rides: stopped", "other job")
    screen.press(b"\x1b[D\x1b[D")
    screen.wait_for("bikes: stopped")
    screen.press(b"\x1b")
    screen.wait_for("select", "rides")
    screen.press(b"q")
    assert screen.ended() == 0
    assert b"\x1b[?1049l" in screen.raw
    assert termios.tcgetattr(screen.terminal)[3] == before[3], "keys are shown again"


def test_it_opens_the_job_that_was_named(store: JobStore, screens: list[Screen]) -> None:
    screen, _ = open_top(screens, store, "fares")
    screen.wait_for("fares: stopped", "all jobs")
    screen.press(b"\x1b")
    screen.wait_for("bikes", "rides", "select")
    screen.press(b"q")
    assert screen.ended() == 0


def test_an_interrupt_ends_it_and_restores_the_terminal(store: JobStore, screens: list[Screen]) -> None:
    screen, before = open_top(screens, store)
    screen.wait_for("quit")
    screen.process.send_signal(signal.SIGINT)
    assert screen.ended() == 0
    assert termios.tcgetattr(screen.terminal)[3] == before[3]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_restores_the_terminal(store: JobStore, screens: list[Screen], number: signal.Signals) -> None:
    screen, before = open_top(screens, store)
    screen.wait_for("quit")
    screen.process.send_signal(number)
    assert screen.ended() == 128 + number
    assert b"\x1b[?1049l" in screen.raw
    assert termios.tcgetattr(screen.terminal)[3] == before[3]


@pytest.mark.parametrize("by", ["q", "interrupt"])
def test_it_ends_while_a_read_of_the_store_hangs(store: JobStore, screens: list[Screen], by: str) -> None:
    hanging = (
        "import os; from threading import Event; from tidemark.cli.top.feed import TopFeed; from tidemark.cli.program.main import main\n"
        "read, reads = TopFeed.read, []\n"
        "def hang(*given, **named):\n"
        "    reads.append(len(reads))\n"
        "    return read(*given, **named) if len(reads) == 1 else os.write(2, b'hangs') and Event().wait()\n"
        "TopFeed.read = hang\n"
        "main()"
    )
    screen, before = open_top(screens, store, program=(sys.executable, "-c", hanging))
    screen.wait_for("hangs", "quit")
    if by == "q":
        screen.press(b"q")
    else:
        screen.process.send_signal(signal.SIGINT)
    assert screen.ended() == 0
    assert termios.tcgetattr(screen.terminal)[3] == before[3]


def test_a_new_job_appears_while_it_runs(store: JobStore, screens: list[Screen]) -> None:
    screen, _ = open_top(screens, store)
    screen.wait_for("bikes")
    JobClient(store, "ada").submit(JobSpec("trams", "trams:job", wanted="suspended"))
    screen.wait_for("trams")
    screen.press(b"q")
    assert screen.ended() == 0


def test_a_tiny_terminal_is_enough(store: JobStore, screens: list[Screen]) -> None:
    screen, _ = open_top(screens, store, size=(5, 20))
    screen.wait_for("bikes")
    screen.press(b"\x1b[F")
    screen.wait_for("rides")
    screen.press(b"\r")
    screen.wait_for("rides: stopped")
    screen.press(b"q")
    assert screen.ended() == 0


def test_without_a_terminal_it_prints_once(store: JobStore) -> None:
    done = subprocess.run([*PROGRAM, "top", "--store", store.uri], capture_output=True, text=True, timeout=120, check=True)
    assert [name for name in ("bikes", "fares", "rides") if name not in done.stdout] == []
    assert "\x1b" not in done.stdout
    assert "quit" not in done.stdout
    page = subprocess.run([*PROGRAM, "top", "fares", "--store", store.uri], capture_output=True, text=True, timeout=120, check=True)
    assert "fares: stopped" in page.stdout
    assert "9 rows, at most 9" in page.stdout
