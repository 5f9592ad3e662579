"""A streaming query is killed at every stage of its micro-batches: is every record read once?

    python tests/campaigns/interrupted_stream.py [--chains 3] [--target kafka] [--seed 1]

The driver is a process of its own, with a source that is ours but kills the whole driver (SIGKILL,
the JVM with it) when a micro-batch has come to a chosen place, and a sink that keeps one file for
each micro-batch, replaced when it comes again. One chain of drivers on one checkpoint:

    latest    before anything is written down      plan   offsets written down, nothing read
    read      in a task, half of a range read      sink   the sink is done, Spark has not noted it
    latest    Spark noted it, the next one begins  plan, read, sink   of the second micro-batch

The query begins at "latest", and records come in at once after Spark asked where that is: the place
must survive, although Spark asks again when it repeats a first micro-batch. Checked: the files hold
every record from there to the end, once. Prints a JSON report; exit code 1 when they do not.
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
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.spark.planning.source import OttlaDataSource
from ottla.spark.planning.stream import OttlaStreamReader

STAGES = ("latest", "plan", "read", "sink", "latest", "plan", "read", "sink")
PARTITIONS = 2
AT_ONCE = 100
"""So many records come in each time that Spark asks where the query begins."""
MOST = 40
"""Offsets of one micro-batch."""


class Fault:
    """What happens when a stage is reached for the first time: nothing, an error, a kill."""

    def __init__(self, options):
        self.stage = options.get("fault.stage", "")
        self.group = int(options.get("fault.group", "0"))

    def reached(self, stage):
        if stage != self.stage:
            return
        if self.group:
            os.killpg(self.group, signal.SIGKILL)
            time.sleep(60)
        raise RuntimeError(f"interrupted at {stage}")


class InterruptedReader(OttlaStreamReader):
    def __init__(self, options, fault, bootstrap, topic):
        super().__init__(options)
        self._fault, self._bootstrap, self._topic = fault, bootstrap, topic

    def initialOffset(self):
        initial = super().initialOffset()
        if self._fault.stage:  # the last link ends at what there was when it began
            produce(self._bootstrap, self._topic, AT_ONCE)
        return initial

    def latestOffset(self, start, limit):
        self._fault.reached("latest")
        return super().latestOffset(start, limit)

    def partitions(self, start, end):
        self._fault.reached("plan")
        return super().partitions(start, end)

    def read(self, partition):
        for batch in super().read(partition):
            yield batch.slice(0, batch.num_rows // 2)
            self._fault.reached("read")
            yield batch.slice(batch.num_rows // 2)


class InterruptedSource(OttlaDataSource):
    """format("interrupted"): ours, with options fault.* besides."""

    def __init__(self, options):
        super().__init__({k: v for k, v in options.items() if not k.startswith("fault.")})
        self._given = dict(options)

    @classmethod
    def name(cls):
        return "interrupted"

    def streamReader(self, schema):
        options = super().streamReader(schema)._options
        bootstrap, topic = self.options["kafka.bootstrap.servers"], self.options["subscribe"]
        return InterruptedReader(options, Fault(self._given), bootstrap, topic)


class Part(WriterCommitMessage):
    def __init__(self, rows):
        self.rows = rows


class FilesWriter(DataSourceStreamArrowWriter):
    """One file for each micro-batch, replaced as a whole."""

    def __init__(self, directory, fault):
        self._directory, self._fault = directory, fault

    def write(self, iterator):
        return Part(
            [[row["partition"], row["offset"]] for batch in iterator for row in batch.to_pylist()]
        )

    def commit(self, messages, batchId):
        rows = sorted(row for each in messages if each for row in each.rows)
        place = Path(self._directory, f"{batchId}.json")
        place.with_suffix(".new").write_text(json.dumps(rows))
        place.with_suffix(".new").replace(place)
        if rows:
            self._fault.reached("sink")

    def abort(self, messages, batchId):
        pass


class FilesSource(DataSource):
    @classmethod
    def name(cls):
        return "files"

    def streamWriter(self, schema, overwrite):
        return FilesWriter(self.options["directory"], Fault(self.options))


def produce(bootstrap, topic, count):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number, None, number % PARTITIONS)
    assert producer.flush(30) == 0


def start(spark, bootstrap, topic, directory, *, stage="", group=0):
    """Start the query of one link of the chain; without a stage it reads all there is, and ends."""
    for source in (InterruptedSource, FilesSource):
        spark.dataSource.register(source)
    fault = {"fault.stage": stage, "fault.group": str(group)}
    frame = (
        spark.readStream.format("interrupted")
        .options(**fault, **{"kafka.bootstrap.servers": bootstrap}, subscribe=topic)
        .option("maxOffsetsPerTrigger", str(MOST))
        .load()
        .select("partition", "offset")
    )
    (directory / "out").mkdir(parents=True, exist_ok=True)
    writer = frame.writeStream.format("files").option("directory", str(directory / "out"))
    writer = writer.options(**fault).option("checkpointLocation", str(directory / "checkpoint"))
    trigger = {"processingTime": "0 seconds"} if stage else {"availableNow": True}
    return writer.trigger(**trigger).start()


def judge(bootstrap, topic, directory):
    """Return what is wrong with the files of a chain, and how many records they hold."""
    from ottla.client.blocking.cluster import BlockingClient
    from ottla.client.wire.settings import ClientSettings, parse_bootstrap

    first = directory / "checkpoint" / "offsets" / "0"
    begin = json.loads(first.read_text().splitlines()[-1])["$ottla"]["begin"][topic]
    with BlockingClient(ClientSettings(bootstrap=parse_bootstrap(bootstrap))) as client:
        ends = client.latest_offsets(client.partitions(topic))
    wanted = {(p, o) for (_, p), end in ends.items() for o in range(begin[str(p)], end)}
    found = Counter(
        tuple(row)
        for file in (directory / "out").glob("*.json")
        for row in json.loads(file.read_text())
    )
    problems = []
    if missing := sorted(wanted - found.keys()):
        problems.append(f"{len(missing)} records are missing, the first is {missing[0]}")
    if extra := sorted(found.keys() - wanted):
        problems.append(f"{len(extra)} records are from before the begin: {extra[0]}")
    if double := sorted(each for each, count in found.items() if count > 1):
        problems.append(f"{len(double)} records were read twice, the first is {double[0]}")
    return problems, len(wanted)


def drive(bootstrap, topic, directory, stage):
    """One driver, which is killed at ``stage``."""
    from ottla.spark import session

    spark = session("interrupted", master="local[2]", log_level="off")
    start(
        spark, bootstrap, topic, Path(directory), stage=stage, group=os.getpgrp()
    ).awaitTermination()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=1)
    parser.add_argument("--target", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--drive", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(*options.drive)
        return 0
    from tools.kafka_peer import KafkaPeer
    from tools.ottla_peer import OttlaPeer

    report = {"kills": 0, "records": 0, "problems": []}
    with tempfile.TemporaryDirectory() as work:
        make = OttlaPeer if options.target == "ottla" else KafkaPeer
        peer = make(Path(work, "data"))
        peer.start()
        try:
            for number in range(options.chains):
                run_chain(peer.bootstrap, Path(work, f"chain-{number}"), report)
        finally:
            peer.kill9()
    print(json.dumps(report))
    return 1 if report["problems"] else 0


def run_chain(bootstrap, directory, report):
    from tools.wire_client import WireClient

    topic = f"chain-{uuid.uuid4().hex[:8]}"
    with WireClient(bootstrap) as wire:
        wire.create_topic(topic, PARTITIONS)
    produce(bootstrap, topic, AT_ONCE)
    for stage in (*STAGES, ""):
        begun = time.monotonic()
        command = [sys.executable, __file__, "--drive", bootstrap, topic, directory, stage]
        done = subprocess.run(command, start_new_session=True, capture_output=True, timeout=300)
        wanted = -signal.SIGKILL if stage else 0
        print(f"{stage or 'to the end'}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
        if done.returncode != wanted:
            tail = done.stderr.decode(errors="replace")[-2000:]
            report["problems"].append(f"{stage}: ended with {done.returncode}: {tail}")
            return
        report["kills"] += bool(stage)
    problems, count = judge(bootstrap, topic, directory)
    report["problems"] += problems
    report["records"] += count
    print(f"so far: {json.dumps(report)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
