"""The options of ``tidemark submit`` for the restart strategy: when a failed driver is started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict, TypeVar

import click

from tidemark.cli.program.options import DURATION
from tidemark.control.model.spec import RestartKind, RestartPolicy
from tidemark.errors import DefinitionError

F = TypeVar("F", bound=Callable[..., object])


class RestartGiven(TypedDict):
    """The options' values by name; None where an option was not given."""

    kind: RestartKind
    restart_delay: int | None
    restart_longest: int | None
    restart_multiplier: float | None
    restart_jitter: float | None
    restart_attempts: int | None
    restart_window: int | None
    restart_reset_after: int | None
    same_epoch_failures: int


_FITS: Final = {
    "restart_delay": ("exponential", "fixed", "rate"),
    "restart_longest": ("exponential",),
    "restart_multiplier": ("exponential",),
    "restart_jitter": ("exponential",),
    "restart_attempts": ("fixed", "rate"),
    "restart_window": ("rate",),
    "restart_reset_after": ("exponential", "fixed"),
}
"""The restart strategies that each option applies to."""

_OPTIONS: Final = (
    click.option(
        "--restart",
        "kind",
        type=click.Choice(["exponential", "fixed", "rate", "none"]),
        default="exponential",
        show_default=True,
        help="Restart strategy after a failure, as in Flink.",
    ),
    click.option(
        "--restart-delay",
        type=DURATION,
        default=None,
        help="Delay before each restart; with 'exponential' it grows, and is none after 5m of health.  [default: 1s; fixed, rate: 10s]",
    ),
    click.option("--restart-longest", type=DURATION, default=None, help="With 'exponential': the longest delay.  [default: 5m]"),
    click.option("--restart-multiplier", type=float, default=None, help="With 'exponential': growth of the delay.  [default: 2]"),
    click.option("--restart-jitter", type=float, default=None, help="With 'exponential': share by which a delay varies.  [default: 0.1]"),
    click.option(
        "--restart-attempts",
        type=click.IntRange(min=0),
        default=None,
        help="With 'fixed': restarts in a row; with 'rate': failures in the window.  [default: 3]",
    ),
    click.option("--restart-window", type=DURATION, default=None, help="With 'rate': the time in which failures count.  [default: 5m]"),
    click.option(
        "--restart-reset-after",
        type=DURATION,
        default=None,
        help="An attempt that ran this long resets the count, as a committed epoch does.  [default: 1h]",
    ),
    click.option(
        "--same-epoch-failures",
        type=click.IntRange(min=0),
        default=3,
        show_default=True,
        help="This many failures in a row at one epoch fail the job; 0: never.",
    ),
)


def restart_options(command: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def restart_policy(given: RestartGiven) -> RestartPolicy:
    """Return the restart policy that the options describe.

    Raises:
        DefinitionError: an option belongs to another strategy and would have no effect.
    """
    kind, plain = given["kind"], dict(given)
    for name, kinds in _FITS.items():
        if plain[name] is not None and kind not in kinds:
            option = f"--{name.replace('_', '-')}"
            raise DefinitionError(
                f"{option} has no effect with the restart strategy {kind!r}",
                fix=f"leave it out, or set --restart {' or --restart '.join(kinds)}",
            )
    default = RestartPolicy()
    delay, attempts = given["restart_delay"], given["restart_attempts"]
    initial = default.initial_ms if delay is None else delay
    return RestartPolicy(
        kind=kind,
        initial_ms=initial,
        longest_ms=max(default.longest_ms, initial) if given["restart_longest"] is None else given["restart_longest"],
        factor=default.factor if given["restart_multiplier"] is None else given["restart_multiplier"],
        jitter=default.jitter if given["restart_jitter"] is None else given["restart_jitter"],
        reset_after_ms=default.reset_after_ms if given["restart_reset_after"] is None else given["restart_reset_after"],
        delay_ms=default.delay_ms if delay is None else delay,
        attempts=default.attempts if attempts is None else attempts,
        failures_per=default.failures_per if attempts is None else attempts,
        per_ms=default.per_ms if given["restart_window"] is None else given["restart_window"],
        same_epoch_failures=given["same_epoch_failures"],
    )
