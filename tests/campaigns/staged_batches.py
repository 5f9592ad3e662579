"""A streaming query whose batches are staged in files is killed at each step of their delivery.

    python tests/campaigns/staged_batches.py [--rounds 3] [--target ottla|kafka|both] [--cluster]
        [--way writeStream|foreachBatch|threads|connect|all] [--victim driver|process]
        [--stages staging,staged,sent,ending,answered,noted]

The query copies a topic with ``delivery=exactly-once`` and messages that may hold next to nothing,
so each task stages a file. It writes by ``writeStream``; by ``write_batch`` in ``foreachBatch``;
there in two threads, each with half of the rows; or there over Spark Connect. It runs in a local
session, or with ``--cluster`` on a master and two workers. The driver is a process of its own and
is killed (SIGKILL, the JVM with it) by one of its own processes, or by a task, when it has come to
a chosen place; with ``--victim process`` only that process of Spark's is killed, the query ends,
and the same driver starts it again, which takes seconds:

    staging   a task has closed its file, others have not
    staged    every file is there, the commit begins
    sent      the first Produce request has left
    ending    EndTxn has left, its answer is not there
    answered  EndTxn is answered, Spark knows nothing of it
    noted     Spark has written the batch's end into the checkpoint

In each round one driver after the other on one checkpoint, one for each place, which repeats what
the one before was killed at, and a last one that goes to the end. Then librdkafka counts
(``read_committed``): every row once, none else; and no staged file is left. After each kill the
topic, read both ways, and the checkpoint tell whether the window was hit. Prints a JSON report with
that; exit code 1 when something is wrong.
"""

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

# ruff: noqa: E402, N802 - the path comes first, and names are Spark's
from ottla.spark.planning.source import OttlaDataSource
from ottla.spark.planning.stream import OttlaStreamReader
from ottla.spark.writing.sink import OttlaStreamWriter, OttlaWriter

STAGES = ("staging", "staged", "sent", "ending", "answered", "noted")
WAYS = ("writeStream", "foreachBatch", "threads", "connect")
PARTITIONS = 3
BATCH_ROWS = 4_000
QUERY_SECONDS_MAX = 900
KILLED = "killed"
NOT_STARTED = "Timed out while waiting for the Python worker to connect back"
"""Spark waits ten seconds for a process that it starts, which are few on a busy machine."""
STARTS_MAX = 5


class Death:
    """What happens at a stage: the driver and all that belongs to it are killed."""

    def __init__(self, options):
        self.stage = options.get("death.stage", "")
        self.group = int(options.get("death.group", "0"))

    def reached(self, stage):
        if stage == self.stage:
            if self.group:
                os.killpg(self.group, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # a process of Spark's is in another group

    def at_its_step(self):
        """Have the client's own methods die where they come to the stage."""
        from ottla.client.blocking.connection import BlockingConnection
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


class Mortal:
    """What both writers do at the stages."""

    def __init__(self, options, death):
        super().__init__(options)
        self._death = death

    def write(self, iterator):
        message = super().write(iterator)
        if message.file is not None:
            self._death.reached("staging")
        return message

    def commit(self, messages, *batch_id):
        if any(each is not None and each.file is not None for each in messages):
            self._death.reached("staged")
            self._death.at_its_step()
        super().commit(messages, *batch_id)


class MortalStreamWriter(Mortal, OttlaStreamWriter):
    pass


class MortalWriter(Mortal, OttlaWriter):
    pass


class MortalSource(OttlaDataSource):
    """format("ottla"), as ``write_batch`` asks for it, with options death.* besides."""

    def __init__(self, options):
        super().__init__({k: v for k, v in options.items() if not k.startswith("death.")})
        self._death = Death(options)

    def streamReader(self, schema):
        return MortalReader(super().streamReader(schema)._options, self._death)

    def streamWriter(self, schema, overwrite):
        return MortalStreamWriter(super().streamWriter(schema, overwrite)._options, self._death)

    def writer(self, schema, overwrite):
        return MortalWriter(super().writer(schema, overwrite)._options, self._death)


def drive(kind, master, victim):
    """Be a driver: run the queries that stdin asks for, a JSON object a line; tell their ends."""
    spark = connect_session(master) if kind == "connect" else classic_session(master)
    spark.dataSource.register(MortalSource)
    group = str(os.getpgrp() if victim == "driver" else 0)
    for line in sys.stdin:
        error = None
        try:
            run_query(spark, group=group, **json.loads(line))
        except Exception as failure:  # noqa: BLE001 - the judge decides what it means
            error = str(failure)
        print(json.dumps({"error": error}), flush=True)


def run_query(spark, *, bootstrap, way, source, sink, checkpoint, stage, group):
    """Copy, killed at ``stage``; without one, to the end."""
    death = {"death.stage": stage, "death.group": group}
    options = death | {"exactlyOnceMaxBytes": "1"}
    rows = (
        spark.readStream.format("ottla")
        .options(**death, **{"kafka.bootstrap.servers": bootstrap}, subscribe=source)
        .options(startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH_ROWS))
        .load()
        .selectExpr("CAST(value AS STRING) AS key", "value")
    )
    if way == "writeStream":
        writer = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.options(topic=sink, delivery="exactly-once", **options)
    else:
        options["stagingLocation"] = str(Path(checkpoint, "ottla-staging"))

        def write(frame, batch_id):
            import concurrent.futures

            import ottla.spark

            def part(name, rows):
                ottla.spark.write_batch(
                    rows, batch_id, name=f"{sink}{name}", bootstrap=bootstrap, topic=sink,
                    options=options,
                )  # fmt: skip

            if way != "threads":
                part("", frame)
                return
            halves = {"-even": "hash(key) % 2 = 0", "-odd": "hash(key) % 2 <> 0"}
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                begun = [pool.submit(part, name, frame.where(h)) for name, h in halves.items()]
                for each in begun:
                    each.result()

        writer = rows.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


def confs_for(master):
    """Return what a session needs on a cluster that others use, too."""
    from tools.spark_cluster import SHARE

    share = dict(each.split("=", 1) for each in SHARE) if master.startswith("spark:") else {}
    return share | {"spark.driver.memory": "768m"}


def classic_session(master):
    from ottla.spark import session

    return session("staged", master=master, confs=confs_for(master), log_level="off")


def connect_session(master):
    """Start a server of Spark Connect in this process's JVM; return its client's session."""
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.session import SparkSession as ClassicSession

    from ottla.spark import local

    def port_of_the_server():
        service = "org.apache.spark.sql.connect.service.SparkConnectService$"
        jvm = ClassicSession._instantiatedSession._jvm
        return getattr(getattr(jvm, service), "MODULE$").localPort()

    local.set_environment()
    DefaultChannelBuilder.default_port = staticmethod(port_of_the_server)
    builder = SparkSession.builder.master(master).appName("staged")
    connect = {"spark.api.mode": "connect", "spark.connect.grpc.binding.port": "0"}
    for key, value in (local.local_confs(master, "off") | confs_for(master) | connect).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class Driver:
    """A driver's process, with those that it starts."""

    def __init__(self, kind, master, victim, log):
        self.log = log
        command = [sys.executable, __file__, "--drive", kind, master, victim]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def run(self, **query):
        """Run a query; return its error, None: it came to its end. Killed: KILLED."""
        self.process.stdin.write(json.dumps(query).encode() + b"\n")
        self.process.stdin.flush()
        watch = threading.Timer(QUERY_SECONDS_MAX, self.process.kill)
        watch.start()
        answer = self.process.stdout.readline()
        if not watch.is_alive():
            return f"took more than {QUERY_SECONDS_MAX} s: {self.tail()}"
        watch.cancel()
        if answer:
            return json.loads(answer)["error"]
        code = self.process.wait()
        return KILLED if code == -signal.SIGKILL else f"ended with {code}: {self.tail()}"

    def tail(self):
        """Return the end of what it has said."""
        return self.log.read_text(errors="replace")[-3000:]

    def close(self):
        """End it."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()


class Drivers:
    """At most one driver of each kind: one that was killed has another in its place."""

    def __init__(self, master, victim, directory):
        self.victim = victim
        self._master, self._log = master, directory / "drivers.log"
        self._there = {}

    def run(self, way, **query):
        """Run a query; return its error, None: it came to its end."""
        kind = "connect" if way == "connect" else "classic"
        if kind not in self._there:
            self._there[kind] = Driver(kind, self._master, self.victim, self._log)
        error = self._there[kind].run(way=way, **query)
        for _ in range(STARTS_MAX):
            if error is None or NOT_STARTED not in error:
                break
            error = self._there[kind].run(way=way, **query)
        if self._there[kind].process.poll() is not None:
            self._there.pop(kind).close()
        return error

    def close(self):
        """End all of them."""
        for each in self._there.values():
            each.close()


def run_round(bootstrap, directory, report, name, drivers, stages):
    """Copy a topic, killed at each of these stages."""
    from tools.wire_client import WireClient

    source, sink = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("rows", "copies"))
    with WireClient(bootstrap) as wire:
        wire.create_topic(source, 2)
        wire.create_topic(sink, PARTITIONS)
    rows = BATCH_ROWS * 4
    fill(bootstrap, source, rows)
    written = 0
    checkpoint = directory / f"checkpoint-{uuid.uuid4().hex[:8]}"
    for stage in (*stages, ""):
        begun = time.monotonic()
        error = drivers.run(
            name.split()[0],
            bootstrap=bootstrap,
            source=source,
            sink=sink,
            checkpoint=str(checkpoint),
            stage=stage,
        )
        left = sum(each.suffix == ".batches" for each in (checkpoint / "ottla-staging").rglob("*"))
        report["files left by kills"] += left
        seconds = time.monotonic() - begun
        print(f"{name} {stage or 'to the end'}: {seconds:.1f} s, {left} files", file=sys.stderr)
        if not is_as_asked(stage, error, drivers.victim):
            report["problems"].append(f"{name} {stage}: {error}")
            return
        if stage:
            report["kills"] += 1
            report["kills by way"][name] += 1
            before = written
            committed, written = look(bootstrap, sink)
            noted = BATCH_ROWS * batches_noted(checkpoint)
            is_hit = {
                "staging": left > 0,
                "staged": left > 1,
                "sent": written > before,
                "ending": written > before,
                "answered": committed > noted,
                "noted": committed == noted,
            }[stage]
            report["windows hit"][stage] += is_hit
    judge(bootstrap, sink, rows, report, name)
    if left:
        report["problems"].append(f"{name}: {left} staged files are left")


def is_as_asked(stage, error, victim):
    """Tell whether a query ended as it should, by what its driver says."""
    if not stage or error is None:
        return not stage and error is None
    if victim == "driver":
        return error == KILLED
    return not error.startswith((KILLED, "took more", "ended with"))


def judge(bootstrap, sink, rows, report, way):
    """Count what is in the sink."""
    found = Counter(read(bootstrap, sink, "read_committed"))
    expected = {b"row-%09d" % number for number in range(rows)}
    for what, values in {
        "lost": expected - found.keys(),
        "invented": found.keys() - expected,
        "doubled": {each for each, times in found.items() if times > 1},
    }.items():
        if values:
            report["problems"].append(f"{way}: {len(values)} rows {what}, such as {min(values)!r}")
    report["rows"] += found.total()
    report["aborted"] += len(read(bootstrap, sink, "read_uncommitted")) - found.total()


def look(bootstrap, sink):
    """Return how many rows are committed, and how many are in the logs."""
    return tuple(
        len(read(bootstrap, sink, f"read_{which}")) for which in ("committed", "uncommitted")
    )


def batches_noted(checkpoint):
    """Return how many micro-batches Spark has noted as done."""
    return sum(each.name.isdigit() for each in (checkpoint / "commits").glob("*"))


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


def stages_of(text):
    """Read the value of ``--stages``."""
    if unknown := sorted(set(text.split(",")) - set(STAGES)):
        raise argparse.ArgumentTypeError(f"unknown stages: {', '.join(unknown)}")
    return tuple(text.split(","))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--target", choices=["ottla", "kafka", "both"], default="ottla")
    parser.add_argument("--way", choices=[*WAYS, "all"], default="writeStream")
    parser.add_argument("--cluster", action="store_true", help="a master and two workers")
    parser.add_argument("--victim", choices=["driver", "process"], default="driver")
    parser.add_argument("--stages", type=stages_of, default=STAGES, help="default: each")
    parser.add_argument("--drive", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(*options.drive)
        return 0
    from tools.kafka_peer import KafkaPeer
    from tools.ottla_peer import OttlaPeer
    from tools.spark_cluster import SparkCluster

    numbers = dict.fromkeys(("kills", "files left by kills", "aborted", "rows"), 0)
    report = {**numbers, "kills by way": Counter(), "windows hit": Counter(), "problems": []}
    ways = WAYS if options.way == "all" else (options.way,)
    peers = {"ottla": OttlaPeer, "kafka": KafkaPeer}
    targets = peers if options.target == "both" else (options.target,)
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        bootstraps = {}
        for target in targets:
            peer = peers[target](Path(work, target))
            stack.callback(peer.kill9)
            peer.start()
            bootstraps[target] = peer.bootstrap
        master = "local[2]"
        if options.cluster:
            master = stack.enter_context(SparkCluster(Path(work, "cluster"))).master
        drivers = Drivers(master, options.victim, Path(work))
        stack.callback(drivers.close)
        for way, _, target in itertools.product(ways, range(options.rounds), targets):
            name = f"{way} at {target}"
            run_round(bootstraps[target], Path(work), report, name, drivers, options.stages)
            print(json.dumps(report), file=sys.stderr)
    print(json.dumps(report))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
