"""A streaming query whose batches are staged in files is killed at each step of their delivery.

    python tests/campaigns/staged_batches.py [--rounds 3] [--target kafka]

The query copies a topic with ``delivery=exactly-once`` and messages that may hold next to nothing,
so each task stages a file. The driver is a process of its own and is killed (SIGKILL, the JVM with
it) by one of its own processes when it has come to a chosen place:

    staging   a task has closed its file, others have not
    staged    every file is there, the commit begins
    sent      the first Produce request has left
    ending    EndTxn has left, its answer is not there
    answered  EndTxn is answered, Spark knows nothing of it
    noted     Spark has written the batch's end into the checkpoint

In each round one driver after the other on one checkpoint, one for each place, which repeats what
the one before was killed at, and a last one that goes to the end. Then librdkafka counts
(``read_committed``): every row once, none else; and no staged file is left. Prints a JSON report
with how many files the kills left and how many rows were aborted, so that one sees that the windows
were hit; exit code 1 when something is wrong.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

# ruff: noqa: E402, N802, N803 - the path comes first, and names are Spark's
from ottla.spark.planning.source import OttlaDataSource
from ottla.spark.planning.stream import OttlaStreamReader
from ottla.spark.writing.sink import OttlaStreamWriter

STAGES = ("staging", "staged", "sent", "ending", "answered", "noted")
PARTITIONS = 3
BATCH_ROWS = 4_000


class Death:
    """What happens at a stage: the driver and all that belongs to it are killed."""

    def __init__(self, options):
        self.stage = options.get("death.stage", "")
        self.group = int(options.get("death.group", "0"))

    def reached(self, stage):
        if stage == self.stage:
            os.killpg(self.group, signal.SIGKILL)
            os._exit(1)  # a Python process of Spark's is in another group

    def at_its_step(self):
        """Have the client's own methods die where they come to the stage."""
        from ottla.client.blocking.cluster import BlockingConnection
        from ottla.client.blocking.coordinators import BlockingCoordinators
        from ottla.protocol.messages.end_txn import EndTxnRequest
        from ottla.protocol.messages.produce import ProduceRequest

        send, end = BlockingConnection.send, BlockingCoordinators.end

        def sending(connection, request, answer, **more):
            send(connection, request, answer, **more)
            if isinstance(request, ProduceRequest):
                self.reached("sent")
            if isinstance(request, EndTxnRequest) and request.committed:
                self.reached("ending")

        def ending(coordinators, producer, *, commit):
            end(coordinators, producer, commit=commit)
            if commit:
                self.reached("answered")

        BlockingConnection.send, BlockingCoordinators.end = sending, ending


class MortalReader(OttlaStreamReader):
    def __init__(self, options, death):
        super().__init__(options)
        self._death, self._asked = death, 0

    def latestOffset(self, start, limit):
        self._asked += 1
        if self._asked == 2:  # Spark has noted the first batch, and begins the next
            self._death.reached("noted")
        return super().latestOffset(start, limit)


class MortalWriter(OttlaStreamWriter):
    def __init__(self, options, death):
        super().__init__(options)
        self._death = death

    def write(self, iterator):
        message = super().write(iterator)
        if message.file is not None:
            self._death.reached("staging")
        return message

    def commit(self, messages, batchId):
        if any(each is not None and each.file is not None for each in messages):
            self._death.reached("staged")
            self._death.at_its_step()
        super().commit(messages, batchId)


class MortalSource(OttlaDataSource):
    """format("mortal"): ours, with options death.* besides."""

    def __init__(self, options):
        super().__init__({k: v for k, v in options.items() if not k.startswith("death.")})
        self._death = Death(options)

    @classmethod
    def name(cls):
        return "mortal"

    def streamReader(self, schema):
        return MortalReader(super().streamReader(schema)._options, self._death)

    def streamWriter(self, schema, overwrite):
        return MortalWriter(super().streamWriter(schema, overwrite)._options, self._death)


def drive(bootstrap, source, sink, checkpoint, stage):
    """One driver, which is killed at ``stage``; without one it goes to the end."""
    from ottla.spark import session

    spark = session("staged", master="local[2]", log_level="off")
    spark.dataSource.register(MortalSource)
    death = {"death.stage": stage, "death.group": str(os.getpgrp())}
    (
        spark.readStream.format("mortal")
        .options(**death, **{"kafka.bootstrap.servers": bootstrap}, subscribe=source)
        .options(startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH_ROWS))
        .load()
        .selectExpr("CAST(value AS STRING) AS key", "value")
        .writeStream.format("mortal")
        .options(**death, **{"kafka.bootstrap.servers": bootstrap}, topic=sink)
        .options(delivery="exactly-once", exactlyOnceMaxBytes="1", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def run_round(bootstrap, directory, report):
    """Copy a topic, killed at each stage."""
    from tools.wire_client import WireClient

    source, sink = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("rows", "copies"))
    with WireClient(bootstrap) as wire:
        wire.create_topic(source, 2)
        wire.create_topic(sink, PARTITIONS)
    rows = BATCH_ROWS * 4
    fill(bootstrap, source, rows)
    staging = directory / "ottla-staging"
    for stage in (*STAGES, ""):
        begun = time.monotonic()
        command = [sys.executable, __file__, "--drive"]
        command += [bootstrap, source, sink, str(directory), stage]
        done = subprocess.run(command, start_new_session=True, capture_output=True, timeout=300)
        left = sum(each.suffix == ".batches" for each in staging.rglob("*"))
        report["files left by kills"] += left
        seconds = time.monotonic() - begun
        print(f"{stage or 'to the end'}: {seconds:.1f} s, {left} files", file=sys.stderr)
        if done.returncode != (-signal.SIGKILL if stage else 0):
            tail = done.stderr.decode(errors="replace")[-3000:]
            report["problems"].append(f"{stage}: ended with {done.returncode}: {tail}")
            return
        report["kills"] += bool(stage)
    if left:
        report["problems"].append(f"{left} staged files are left")
    found = Counter(read(bootstrap, sink, "read_committed"))
    expected = {b"row-%09d" % number for number in range(rows)}
    for what, values in {
        "lost": expected - found.keys(),
        "invented": found.keys() - expected,
        "doubled": {each for each, times in found.items() if times > 1},
    }.items():
        if values:
            report["problems"].append(f"{len(values)} rows {what}, such as {min(values)!r}")
    report["rows"] += found.total()
    report["aborted"] += len(read(bootstrap, sink, "read_uncommitted")) - found.total()


def fill(bootstrap, topic, rows):
    """Write the input."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20}
    producer = Producer(settings | {"queue.buffering.max.messages": rows + 1})
    for number in range(rows):
        producer.produce(topic, b"row-%09d" % number, partition=number % 2)
    assert producer.flush(60) == 0


def read(bootstrap, topic, isolation):
    """Return all values of the topic, by librdkafka."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    values, left = [], set(range(PARTITIONS))
    consumer.assign([TopicPartition(topic, number, 0) for number in left])
    deadline = time.monotonic() + 120
    while left:
        assert time.monotonic() < deadline, "the result was not read to its end"
        for message in consumer.consume(10_000, 0.5):
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    consumer.close()
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--target", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--drive", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(*options.drive)
        return 0
    from tools.kafka_peer import KafkaPeer
    from tools.ottla_peer import OttlaPeer

    report = {"kills": 0, "files left by kills": 0, "aborted": 0, "rows": 0, "problems": []}
    with tempfile.TemporaryDirectory() as work:
        make = OttlaPeer if options.target == "ottla" else KafkaPeer
        peer = make(Path(work, "data"))
        peer.start()
        try:
            for number in range(options.rounds):
                run_round(peer.bootstrap, Path(work, f"checkpoint-{number}"), report)
        finally:
            peer.kill9()
    print(json.dumps(report))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
