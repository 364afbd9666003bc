"""Writes files of transfers between accounts: deterministic, out of order, some of them late, some accounts far busier than others."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

START = datetime(2024, 1, 1, tzinfo=UTC)


def write_transfers(landing: Path, *, files: int = 8, rows: int = 200, accounts: int = 50, seed: int = 1) -> int:
    """Write transfers into a folder, a few seconds apart; return how many.

    Args:
        landing: the folder; it is created.
        files: how many.
        rows: transfers in each.
        accounts: accounts that take part.
        seed: of the random numbers.
    """
    random = Random(seed)
    landing.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        lines = []
        for row in range(rows):
            number = file * rows + row
            late = timedelta(hours=random.choice([0] * 19 + [3]))
            at = START + timedelta(seconds=5 * number + random.randint(-30, 30)) - late
            pays, gets = (min(random.randrange(accounts), random.randrange(accounts)) for _ in range(2))
            amount = random.randrange(1, 100_000)
            lines.append(
                {
                    "transfer_id": number,
                    "at": at.isoformat(),
                    "from_account": pays,
                    "to_account": gets,
                    "amount": f"{amount // 100}.{amount % 100:02}",
                }
            )
        path = landing / f"transfers-{file:04}.json"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return files * rows
