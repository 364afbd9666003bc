"""Records of an epoch are published once: killed anywhere, published twice, fenced, with the broker restarted in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import get_args

import pytest

from tests.kafka.broker import NEEDS_JARS, Broker
from tests.kafka.sink_publications import IDENTITY, LINEAGE, OUTPUT, PER_TRANSACTION, ROWS, Publications, values
from tests.kafka.topic_records import Isolation, Read, create_topic, delete_group, kafka, read
from tests.killed import kill_at
from tests.seeds import only_long, some
from tidemark.crashpoints import CONNECTOR_POINTS
from tidemark.errors import FencedError, MissingEpochsError, PublishError, SinkError
from tidemark.graph.connectors.kafka.spec import Guarantee, KafkaSpec
from tidemark.spark.sinks.kafka.client import Access
from tidemark.spark.sinks.kafka.marker import Marker
from tidemark.spark.sinks.kafka.sink import KafkaSink
from tidemark.spark.sinks.kafka.staged_records import Record
from tidemark.spark.sinks.kafka.transactions import Transactions
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.sink_owner import SinkOwner

pytestmark = [NEEDS_JARS, pytest.mark.crash, pytest.mark.slow]

_names = count()

POINTS = [f"{point}:{times}" for point in CONNECTOR_POINTS for times in ((1, 2) if point == "staged-rows-deleted" else (1, 3, 5))]


@pytest.fixture
def published(broker: Broker, tmp_path: Path) -> Publications:
    """Publications to a new topic, which has a marker of its own."""
    topic = create_topic(broker.address, f"totals{next(_names)}")
    return Publications(tmp_path, broker.address, topic)


def seen(published: Publications, isolation: Isolation = "read_committed", *, has_open_transaction: bool = False) -> list[Read]:
    return read(published.address, published.topic, isolation, has_open_transaction=has_open_transaction)


def check_once(published: Publications, epochs: int) -> None:
    """Check that readers of committed records see each row of these epochs once, in the order of the epochs within a partition."""
    found = seen(published)
    assert Counter(record.value for record in found) == Counter(value for epoch in range(epochs) for value in values(epoch))
    for partition in range(3):
        order = [int((record.value or "").partition("/")[0]) for record in found if record.partition == partition]
        assert order == sorted(order)


def kill(published: Publications, point: str, *, epochs: int = 4) -> None:
    args = [str(published.folder), published.address, published.topic, published.delivery, str(epochs)]
    kill_at("tests.kafka.sink_publications:drive", point, args)


def test_killed_at_any_point_each_row_is_seen_once(published: Publications) -> None:
    """With four more epochs each time, which the next driver publishes the rest of."""
    points = ["output-staged:2", "after-commit:2", *some(POINTS, 3, first=1), "output-published:2"]
    for number, point in enumerate(points, 1):
        kill(published, point, epochs=4 * number)
        published.run(4 * number)
    check_once(published, 4 * len(points))


def test_killed_again_and_again(published: Publications) -> None:
    for point in ("records-sent:2", "transaction-begun:1", "marker-sent:1", "transaction-committed:2", "records-sent:1"):
        kill(published, point)
    published.run(4)
    check_once(published, 4)


@pytest.mark.parametrize("rows", [PER_TRANSACTION // 2, pytest.param(2 * PER_TRANSACTION, marks=only_long)])
def test_another_size_of_transactions_after_a_kill(published: Publications, rows: int) -> None:
    """Killed with one of three transactions of the second epoch published."""
    kill(published, "transaction-committed:4")
    published.per_transaction = rows
    published.run(4)
    check_once(published, 4)


def test_another_prefix_after_a_kill(published: Publications) -> None:
    """The epoch that was committed before is published as it was staged: with the former prefix, whose marker shows what there is."""
    kill(published, "transaction-committed:4")
    published.prefix = "other"
    published.run(2)
    published.run(4)
    check_once(published, 4)


def test_staged_files_that_are_gone_before_their_publication(published: Publications) -> None:
    sink = published.run(1)
    record = published.stage(sink, 1)
    published.commit(record, 1)
    published.store.delete(file.path for file in record.files)
    with pytest.raises(MissingEpochsError, match=r"'totals' does not show epoch 1.*files that were staged for it are deleted"):
        published.run(2)
    check_once(published, 1)


def test_a_marker_is_renewed_before_an_epoch_is_committed(published: Publications) -> None:
    """Brokers delete a marker a week after it was written, also while the job runs and the output has no rows."""
    published.run(1)
    delete_group(published.address, IDENTITY)
    sink = published.sink()
    sink.expect(Expected(newest=(LINEAGE, 0)))
    sink.require_whole()
    record = published.stage(sink, 1)
    published.commit(record, 1)
    assert published.sink().newest(LINEAGE) == 0
    published.run(2)
    check_once(published, 2)


def test_what_a_killed_driver_left_open_is_ended_by_the_next_start(published: Publications) -> None:
    kill(published, "records-sent:2")
    producer = kafka.Producer({"bootstrap.servers": published.address})
    for partition in range(3):
        producer.produce(published.topic, "others", partition=partition)
    producer.flush()
    assert "others" in [record.value for record in seen(published, "read_uncommitted")]
    held_back = seen(published, has_open_transaction=True)
    assert "others" not in [record.value for record in held_back], "an open transaction holds readers back"
    published.sink().require_whole()
    committed = [record.value for record in seen(published)]
    assert Counter(committed) == Counter([*values(0)[:PER_TRANSACTION], *["others"] * 3])


def batches(texts: list[str]) -> Iterator[Iterable[Record]]:
    yield [(None, text.encode(), None) for text in texts]


class Term:
    """A driver's right to publish, which ends when another one begins."""

    def __init__(self) -> None:
        self.is_over = False

    def confirm(self) -> None:
        if self.is_over:
            raise FencedError("a newer driver has begun", fix="none")


def transactions(published: Publications, term: Term | None = None) -> Transactions:
    access = Access(OUTPUT, published.address, published.topic, f"{IDENTITY}-{published.topic}")
    return Transactions(access, PER_TRANSACTION, (term or Term()).confirm)


def test_a_second_publication_adds_nothing(published: Publications) -> None:
    publishers = [transactions(published) for _ in range(2)]
    for publisher in publishers:
        for _ in range(2):
            for epoch in range(2):
                publisher.publish(lambda a, b, e=epoch: batches(values(e)[a:b]), ROWS, LINEAGE, epoch)  # type: ignore[misc]
    check_once(published, 2)
    assert [publisher.marker for publisher in publishers] == [Marker(LINEAGE, 1, ROWS, ROWS)] * 2


def test_a_driver_that_was_taken_over_is_fenced(published: Publications) -> None:
    """The older driver is in the middle of a transaction when the newer one starts and publishes the same epoch."""
    newer, term = transactions(published), Term()
    older = transactions(published, term)
    older.open()
    begun: list[bool] = []

    def slow(start: int, stop: int) -> Iterator[Iterable[Record]]:
        yield from batches(values(0)[start : start + 50])
        if not begun:
            begun.append(True)
            term.is_over = True
            newer.open()
            newer.publish(lambda a, b: batches(values(0)[a:b]), ROWS, LINEAGE, 0)
        yield from batches(values(0)[start + 50 : stop])

    with pytest.raises(FencedError):
        older.publish(slow, ROWS, LINEAGE, 0)
    check_once(published, 1)
    newer.publish(lambda a, b: batches(values(1)[a:b]), ROWS, LINEAGE, 1)
    check_once(published, 2)


def test_a_driver_that_an_older_one_fences_goes_on(published: Publications) -> None:
    """The older driver's producer starts after the newer one's: its term is refused, and the newer one starts another producer."""
    newer = transactions(published)
    newer.publish(lambda a, b: batches(values(0)[a:b]), ROWS, LINEAGE, 0)
    term = Term()
    older = transactions(published, term)
    term.is_over = True
    with pytest.raises(FencedError):
        older.publish(lambda a, b: batches(values(0)[a:b]), ROWS, LINEAGE, 0)
    newer.publish(lambda a, b: batches(values(1)[a:b]), ROWS, LINEAGE, 1)
    check_once(published, 2)


def test_a_broker_that_restarts_in_a_transaction(published: Publications, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # The client may wait for a coordinator for ever, so all of this goes by.
    for module in ("connection", "transactions"):
        monkeypatch.setattr(f"tidemark.spark.sinks.kafka.{module}.WAIT_S", 5.0)
    publisher = transactions(published)
    publisher.publish(lambda a, b: batches(values(0)[a:b]), ROWS, LINEAGE, 0)
    restarted: list[bool] = []

    def slow(start: int, stop: int) -> Iterator[Iterable[Record]]:
        yield from batches(values(1)[start : start + 50])
        if not restarted:
            restarted.append(True)
            broker.restart()
        yield from batches(values(1)[start + 50 : stop])

    publisher.publish(slow, ROWS, LINEAGE, 1)
    check_once(published, 2)


def test_at_least_once_is_once_without_a_crash_and_twice_after_one(published: Publications) -> None:
    published.delivery = "at_least_once"
    kill(published, "records-sent:2")
    published.run(4)
    found = Counter(record.value for record in seen(published))
    assert set(found) == {value for epoch in range(4) for value in values(epoch)}
    assert {found[value] for epoch in (0, 2, 3) for value in values(epoch)} == {1}
    assert {found[value] for value in values(1)} <= {1, 2}


def test_keys_go_where_clients_of_java_expect_them(broker: Broker) -> None:
    """The hashes are those of the test of Kafka's own ``Utils.murmur2``."""
    hashes = {
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        "abc": 479470107,
    }
    topic = create_topic(broker.address, f"keys{next(_names)}", partitions=7)
    publisher = Transactions(Access(OUTPUT, broker.address, topic, f"keys-{topic}"), 100, lambda: None)
    publisher.publish(lambda _a, _b: iter([[(key.encode(), b"x", None) for key in hashes]]), len(hashes), LINEAGE, 0)
    assert {record.key: record.partition for record in read(broker.address, topic)} == {
        key: (value & 0x7FFFFFFF) % 7 for key, value in hashes.items()
    }


def test_a_marker_that_is_gone(published: Publications) -> None:
    """Where it is not known whether a committed epoch was published, nothing is; a new epoch is."""
    kill(published, "transaction-committed:4")
    before = Counter(record.value for record in seen(published))
    delete_group(published.address, IDENTITY)
    with pytest.raises(MissingEpochsError, match=r"marker of output 'totals' is gone.*epoch 1.*Fix: look into the topic"):
        published.run(4)
    assert Counter(record.value for record in seen(published)) == before
    published.delivery = "at_least_once"
    published.run(2)
    assert {value for value, number in Counter(record.value for record in seen(published)).items() if number > 2} == set()
    published.delivery = "exactly_once"
    published.run(4)
    assert {record.value for record in seen(published)} == {value for epoch in range(4) for value in values(epoch)}


def test_a_group_of_another_program(published: Publications) -> None:
    consumer = kafka.Consumer({"bootstrap.servers": published.address, "group.id": IDENTITY})
    consumer.commit(offsets=[kafka.TopicPartition(published.topic, 0, 5, "theirs")], asynchronous=False)
    consumer.close()
    with pytest.raises(SinkError, match=r"was used by another program.*id_prefix="):
        published.sink().require_whole()
    delete_group(published.address, IDENTITY)


def test_a_topic_that_does_not_exist(published: Publications) -> None:
    published.topic = "nowhere"
    with pytest.raises(SinkError, match=r"the topic 'nowhere' of output 'totals' does not exist.*kafka-topics"):
        published.sink().require_whole()


def test_brokers_that_do_not_answer(published: Publications, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.sinks.kafka.connection.FIND_S", 1.0)
    published.address = "127.0.0.1:9"
    for delivery in get_args(Guarantee):
        published.delivery = delivery
        with pytest.raises(PublishError, match=r"the brokers of output 'totals' cannot be reached.*Connection refused"):
            published.sink().require_whole()


def test_a_record_without_a_key_in_a_compacted_topic(broker: Broker, tmp_path: Path) -> None:
    topic = create_topic(broker.address, f"compacted{next(_names)}", settings={"cleanup.policy": "compact"})
    published = Publications(tmp_path, broker.address, topic)
    with pytest.raises(SinkError, match=r"refuses records of output 'totals'.*a compacted topic takes no records without a key"):
        published.run(1)


def test_secrets_are_in_no_record_and_no_error(published: Publications, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "marker-s3cret"  # noqa: S105 - what must not be shown
    monkeypatch.setenv("TOTALS_PASSWORD", secret)
    monkeypatch.setattr("tidemark.spark.sinks.kafka.connection.FIND_S", 1.0)
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ada"}
    spec = KafkaSpec(published.address, published.topic, options=options, environment={"sasl.password": "TOTALS_PASSWORD"})
    sink = KafkaSink(OUTPUT, spec, SinkOwner(published.store))
    with pytest.raises((SinkError, PublishError)) as raised:
        sink.require_whole()
    shown = [str(raised.value), repr(raised.value.__cause__), repr(spec), spec.describe(), spec.location, str(sink.record_options)]
    assert not [text for text in shown if secret in text]
    assert "TOTALS_PASSWORD" in str(sink.record_options)
