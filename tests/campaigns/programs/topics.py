"""Topics of all kinds, and the truth about them: what librdkafka reads.

Filled by several writers, in every codec, in transactions that are committed, aborted or stay open;
compacted, cut short, deleted and made anew. Knows nothing of Spark.
"""

import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
}
KEPT = {"retention.ms": "-1"}
"""Records are of 2023: the broker's retention would take them at its first check."""
KEYS = (None, b"", *(b"key-%d" % number for number in range(12)))
SETTLED_SECONDS = 0.7
UNTIL_SETTLED_SECONDS = 20
WAIT_SECONDS = 60


class Topics:
    """The topics of one program. Not thread-safe."""

    def __init__(self, bootstrap, prefix):
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.compacted = set()
        self._made = set()
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._numbers = {}
        self._open = []
        self._known = {}

    def make(self, name, partitions, *, compacted=False):
        configs = COMPACTED if compacted else KEPT
        new = NewTopic(name, partitions, 1, config=configs)
        self._admin.create_topics([new])[name].result(WAIT_SECONDS)
        self._made.add(name)
        if compacted:
            self.compacted.add(name)
        self._known.pop(name, None)

    def partitions(self, name):
        return len(self._admin.list_topics(name, WAIT_SECONDS).topics[name].partitions)

    def fill(self, name, dice):
        """Write a few hundred records in one of the ways; what is written is known by its value."""
        partitions = self.partitions(name)
        way = dice.choice(("plain", "plain", "transactions", "one by one"))
        settings = {
            "bootstrap.servers": self.bootstrap,
            "compression.type": dice.choice(CODECS),
            "linger.ms": 0 if way == "one by one" else dice.choice((1, 20)),
            "batch.num.messages": dice.choice((1, 7, 1000)),
            "acks": "all",
        }
        if way == "transactions":
            settings["transactional.id"] = f"{name}-{dice.randrange(10**9)}"
            settings["transaction.timeout.ms"] = 900_000
        producer = Producer(settings)
        if way != "transactions":
            self._send(producer, name, partitions, dice.randrange(1, 250), dice)
        else:
            producer.init_transactions(WAIT_SECONDS)
            for _ in range(dice.randrange(1, 5)):
                producer.begin_transaction()
                self._send(producer, name, partitions, dice.randrange(1, 60), dice)
                outcome = dice.choice(("commit", "commit", "abort"))
                if outcome == "commit":
                    producer.commit_transaction(WAIT_SECONDS)
                else:
                    producer.abort_transaction(WAIT_SECONDS)
            if dice.random() < 0.15:
                producer.begin_transaction()
                self._send(producer, name, partitions, 5, dice)
                self._open.append(producer)
        self._known.pop(name, None)

    def _send(self, producer, name, partitions, count, dice):
        favourite = dice.randrange(partitions)
        for _ in range(count):
            number = self._numbers[name] = self._numbers.get(name, 0) + 1
            key = dice.choice(KEYS)
            if name in self.compacted and key is None:
                key = b"key"
            padding = b"\xff\x00pad" * dice.choice((0, 0, 1, 40))
            value = None if dice.random() < 0.07 else b"%s %d " % (name.encode(), number) + padding
            headers = [("h", b"%d" % number), ("\u00e9", None)] if dice.random() < 0.2 else []
            partition = favourite if dice.random() < 0.5 else dice.randrange(partitions)
            at = START_MS + 1000 * number + dice.randrange(-5000, 5000)
            producer.produce(name, value, key, partition, headers=headers, timestamp=at)
            producer.poll(0)
        if producer.flush(WAIT_SECONDS):
            raise RuntimeError(f"{name} was not filled")

    def delete_records(self, name, dice):
        """Move the log start of a partition."""
        partition = dice.randrange(self.partitions(name))
        low, high = self.ends(name)[partition]
        at = [TopicPartition(name, partition, dice.randint(low, high))]
        for future in self._admin.delete_records(at).values():
            future.result(WAIT_SECONDS)
        self._known.pop(name, None)

    def make_anew(self, name, partitions):
        self.delete(name)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return self.make(name, partitions, compacted=name in self.compacted)
            except Exception:
                if time.monotonic() > deadline:
                    raise

    def delete(self, name):
        self._admin.delete_topics([name])[name].result(WAIT_SECONDS)
        self._known.pop(name, None)

    def add_partitions(self, name, count):
        new = [NewPartitions(name, self.partitions(name) + count)]
        for future in self._admin.create_partitions(new).values():
            future.result(WAIT_SECONDS)
        self._known.pop(name, None)

    def ends(self, name):
        """Return the log start and end offsets of each partition."""
        consumer = self._consumer("read_uncommitted")
        try:
            return [
                consumer.get_watermark_offsets(TopicPartition(name, each), WAIT_SECONDS)
                for each in range(self.partitions(name))
            ]
        finally:
            consumer.close()

    def truth(self, name, isolation, *, anew=False):
        """Return every record, as a dict of the columns of programs."""
        known = self._known.setdefault(name, {})
        if anew or isolation not in known:
            known[isolation] = self._read(name, isolation)
            if name in self.compacted:
                self._settle(name, isolation)
        return known[isolation]

    def _settle(self, name, isolation):
        known, deadline = self._known[name], time.monotonic() + UNTIL_SETTLED_SECONDS
        while time.monotonic() < deadline:
            time.sleep(SETTLED_SECONDS)
            again = self._read(name, isolation)
            if again == known[isolation]:
                return
            known[isolation] = again

    def _read(self, name, isolation):
        consumer = self._consumer(isolation)
        rows, left = [], set(range(self.partitions(name)))
        deadline = time.monotonic() + WAIT_SECONDS
        try:
            consumer.assign([TopicPartition(name, each, 0) for each in left])
            while left:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{name} was not read to its end")
                for message in consumer.consume(10_000, 0.2):
                    error = message.error()
                    if error is None:
                        rows.append(_row(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
        finally:
            consumer.close()
        return rows

    def _consumer(self, isolation):
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "truth",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )

    def close(self):
        """End what is open, and delete the topics."""
        for producer in self._open:
            producer.abort_transaction(WAIT_SECONDS)
        mine = [each for each in self._admin.list_topics().topics if each in self._made]
        if mine:
            for future in self._admin.delete_topics(mine).values():
                future.result(WAIT_SECONDS)


def _row(message):
    kind, at = message.timestamp()
    key, value, headers = message.key(), message.value(), message.headers()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "ts": at,
        "tt": kind - 1,
        "k": _hex(key),
        "v": _hex(value),
        "n": None if value is None else len(value),
        "h": None if not headers else "|".join(f"{n}={_hex(v) or 'null'}" for n, v in headers),
    }


def _hex(data):
    return None if data is None else data.hex().upper()
