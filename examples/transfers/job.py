"""Balances of accounts from transfers between them, and their total, which is 0 in every version of its table.

Each transfer takes from one account what it adds to another. Credits and debits are two running sums, joined by account, and the balances
are summed again. A system in which the two sums run ahead of each other shows money that does not exist; here every table of an epoch
comes from the same transfers.
"""

from __future__ import annotations

from pathlib import Path

import tidemark as tm

TRANSFER = "transfer_id BIGINT, at TIMESTAMP, from_account INT, to_account INT, amount DECIMAL(18, 2)"


def build_job(
    landing: str | Path,
    warehouse: str | Path,
    *,
    name: str = "transfers",
    store: str | Path | None = None,
    files_per_epoch: int | None = 1,
    parallelism: int | None = None,
) -> tm.Job:
    """Return the job over a landing folder of JSON-lines files.

    Args:
        landing: folder in which files of transfers arrive.
        warehouse: folder of the Delta tables ``balances``, ``balance_history`` and ``total``.
        name: the job's.
        store: folder of the job's log and state; None leaves the choice to the runner.
        files_per_epoch: greatest number of files that one epoch reads; None leaves it to the engine.
        parallelism: of its shuffles; None leaves it to the session.
    """
    transfers = tm.source(
        "transfers",
        tm.files(str(landing), format="json", schema=TRANSFER, max_files_per_epoch=files_per_epoch),
        watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="at"),
    )
    credits = transfers.key_by(account="to_account").aggregate(credit=tm.sum("amount")).uid("credits")
    debits = transfers.key_by(debited="from_account").aggregate(debit=tm.sum("amount")).uid("debits")
    balances = (
        credits.join(debits, on={"account": "debited"}, how="full")
        .uid("balances-of-accounts")
        .with_columns(balance="coalesce(credit, CAST(0 AS DECIMAL(18, 2))) - coalesce(debit, CAST(0 AS DECIMAL(18, 2)))")
    )
    everything = balances.key_by(everything="'all'")
    # With what was moved the row changes in each epoch, so that each has a version of the table.
    total = everything.aggregate(accounts=tm.count(), moved=tm.sum("credit"), total=tm.sum("balance")).uid("total-of-balances")
    folder = Path(warehouse)
    return tm.Job(
        name,
        outputs={
            "balances": tm.delta(balances, str(folder / "balances"), mode="upsert"),
            "balance_history": tm.delta(balances, str(folder / "balance_history")),
            "total": tm.delta(total, str(folder / "total"), mode="upsert"),
        },
        store=None if store is None else str(store),
        parallelism=parallelism,
        description="Balances of accounts, from transfers between them; their total is 0 at any time.",
    )
