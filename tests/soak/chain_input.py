"""The input of the chain: transfers between accounts in Postgres, whose sum stays, and moves of accounts between branches in Kafka."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.postgres.server import Server

ACCOUNTS: Final = 200
BALANCE: Final = 1_000
TOTAL: Final = ACCOUNTS * BALANCE
"""The sum of all balances, whatever the transfers."""

TOPIC: Final = "moves"

PARTITIONS: Final = 3
_BRANCHES: Final = 8
_PAUSE_SECONDS: Final = 0.02
_AWAY_SECONDS: Final = 0.2
_SWAP_EVERY: Final = 500
"""Every so many transfers one swaps the balances of many accounts."""

_WAIT_SECONDS: Final = 120.0


def make_bank(server: Server) -> None:
    """Make the accounts."""
    server.query("CREATE SCHEMA bank")
    server.query("CREATE TABLE bank.accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)")
    server.query(f"INSERT INTO bank.accounts SELECT i, {BALANCE} FROM generate_series(1, {ACCOUNTS}) AS i")


@dataclass
class Bank:
    """Changes accounts. The server may die in any transaction, which leaves the sum as it was whether it was committed or not.

    Args:
        server: of the accounts.
        chance: decides.

    Attributes:
        ids: of the accounts, as they were a moment ago.
        transfers: how many transactions were committed, as far as is known.
    """

    server: Server
    chance: random.Random
    ids: list[int] = field(default_factory=lambda: list(range(1, ACCOUNTS + 1)))
    transfers: int = 0

    def run(self, ended: threading.Event) -> None:
        """Transfer until it is to end."""
        while not ended.is_set():
            try:
                with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
                    while not ended.wait(_PAUSE_SECONDS):
                        with connection.transaction():
                            self._transfer(connection)
                        self.transfers += 1
            except psycopg.OperationalError:
                ended.wait(_AWAY_SECONDS)

    def _transfer(self, connection: psycopg.Connection) -> None:
        self.ids = [number for (number,) in connection.execute("SELECT id FROM bank.accounts ORDER BY id")]
        giver, taker = self.chance.sample(self.ids, 2)
        if self.transfers % _SWAP_EVERY == _SWAP_EVERY - 1:
            swap = "UPDATE bank.accounts AS a SET balance = b.balance FROM bank.accounts AS b WHERE b.id = %s - a.id"
            connection.execute(swap, [giver + taker])
        elif self.chance.random() < 0.1:
            connection.execute(
                "WITH closed AS (DELETE FROM bank.accounts WHERE id = %s RETURNING balance) "
                "UPDATE bank.accounts SET balance = accounts.balance + closed.balance FROM closed WHERE id = %s",
                [giver, taker],
            )
            connection.execute("INSERT INTO bank.accounts VALUES (%s, 0)", [self.ids[-1] + 1])
        else:
            amount = self.chance.randint(1, 50)
            for account, change in ((giver, -amount), (taker, amount)):
                connection.execute("UPDATE bank.accounts SET balance = balance + %s WHERE id = %s", [change, account])


@dataclass
class Moves:
    """Moves accounts to branches, and back to none.

    Args:
        address: of the broker.
        bank: with the accounts.
        chance: decides.

    Attributes:
        sent: how many records the broker has confirmed.
        lost: errors of records that it has not.
    """

    address: str
    bank: Bank
    chance: random.Random
    sent: int = 0
    lost: list[str] = field(default_factory=list)

    def run(self, ended: threading.Event) -> None:
        """Send records until it is to end, then wait until the broker has them all."""
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "enable.idempotence": True,
                # A record waits for its broker as long as that takes.
                "message.timeout.ms": 0,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 2,
            }
        )
        while not ended.wait(_PAUSE_SECONDS):
            account = self.chance.choice(self.bank.ids)
            branch = None if self.chance.random() < 0.1 else f"b{self.chance.randrange(_BRANCHES)}"
            value = json.dumps({"id": account, "branch": branch}).encode()
            producer.produce(TOPIC, value, str(account).encode(), on_delivery=self._note)
            producer.poll(0)
        if producer.flush(_WAIT_SECONDS):
            self.lost.append("the broker did not take the last records")

    def _note(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            self.lost.append(str(error))
        else:
            self.sent += 1


@contextmanager
def running(*writers: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run writers, each in a thread, during the block; what one raises, the block's end raises."""
    ended, failures = threading.Event(), list[BaseException]()

    def run(writer: Callable[[threading.Event], None]) -> None:
        try:
            writer(ended)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=[writer]) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(2 * _WAIT_SECONDS)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)


def newest_branches(address: str) -> tuple[dict[int, str | None], int]:
    """Return the newest branch of each account in the topic, and how many records it has."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "batch", "enable.auto.commit": False})
    places = [TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    ends = {place.partition: consumer.get_watermark_offsets(place, _WAIT_SECONDS)[1] for place in places}
    left = {number for number, end in ends.items() if end > 0}
    found: dict[int, str | None] = {}
    count = 0
    consumer.assign(places)
    while left:
        message = consumer.poll(_WAIT_SECONDS)
        assert message is not None
        assert message.error() is None, message.error()
        value = json.loads(message.value() or b"")
        found[int(value["id"])] = value["branch"]
        count += 1
        partition = message.partition()
        assert partition is not None
        if message.offset() == ends[partition] - 1:
            left.discard(partition)
    consumer.close()
    return found, count
