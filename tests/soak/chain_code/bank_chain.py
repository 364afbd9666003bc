"""The chain: accounts of Postgres joined with the newest branch of each, from Kafka; running totals of branches to Postgres and Delta."""

from __future__ import annotations

import os

import tidemark as tm

NO_BRANCH = "none"


def chain() -> tm.Job:
    """Return the job; its ends are named by environment variables."""
    bank = tm.postgres_changes(
        "bank",
        dsn_env="CHAIN_DSN",
        tables={"bank.accounts": tm.postgres_table("id BIGINT, balance BIGINT", key=["id"])},
    )
    topic = tm.kafka_source(
        servers=os.environ["CHAIN_KAFKA"], topics="moves", format="json", schema="id BIGINT NOT NULL, branch STRING", start="earliest"
    )
    moves = tm.source("moves", topic, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="timestamp", idle_after="5 seconds"))
    branches = moves.select(account="value.id", branch="value.branch").latest(by=["account"]).uid("branches")
    placed = bank.table("bank.accounts").join(branches, on={"id": "account"}, how="left").uid("placed")
    placed = placed.select("id", "account", "balance", branch=f"coalesce(branch, '{NO_BRANCH}')")
    totals = placed.key_by("branch").aggregate(accounts=tm.count(), total=tm.sum("balance")).uid("totals")
    return tm.Job(
        "chain",
        outputs={
            "table": tm.postgres(totals, table="bank.totals", dsn_env="CHAIN_DSN", mode="upsert"),
            "lake": tm.delta(totals, os.environ["CHAIN_LAKE"], mode="upsert"),
        },
        # No epoch is retired, so that the log has all of them in the end.
        retained_epochs=100_000,
    )
