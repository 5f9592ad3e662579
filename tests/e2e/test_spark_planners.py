"""The processes that plan the streams of a session: forked from one, and who ends with whom."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux only"),
]
KILLED = """
import json, sys, time
import ottla.spark
spark = ottla.spark.session("killed", master="local[2]", log_level="off")
bootstrap, topic, directory = sys.argv[1:4]
queries = []
for number in range(2):
    frame = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    frame = frame.option("subscribe", topic).option("startingOffsets", "earliest").load()
    writer = frame.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", topic + "-copy").trigger(processingTime="100 milliseconds")
    queries.append(writer.option("checkpointLocation", f"{directory}/{number}").start())
while not all(each.recentProgress for each in queries):
    time.sleep(0.1)
print("running", flush=True)
time.sleep(600)
"""


def processes():
    """Every process: number -> (parent, command)."""
    found = {}
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            after_name = (place / "stat").read_text().rpartition(")")[2].split()
            if after_name[0] != "Z":
                command = (place / "cmdline").read_bytes().decode("utf-8", "replace")
                found[int(place.name)] = (int(after_name[1]), command)
    return found


def planners(below=None):
    """The planners that a process has started: number -> parent."""
    there = processes()

    def is_below(number):
        while number in there and number != (below or os.getpid()):
            number = there[number][0]
        return number in there

    return {
        number: parent
        for number, (parent, command) in there.items()
        if "ottla.spark.planner" in command and is_below(number)
    }


def until(is_so, *queries):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, [each.exception() for each in queries] or processes()
        time.sleep(0.05)


@pytest.fixture
def topic(target, topic_name):
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 1)
        wire.create_topic(f"{topic_name}-copy", 1)
    return topic_name


@pytest.fixture
def produce(target, topic):
    from confluent_kafka import Producer

    def write(value):
        producer = Producer({"bootstrap.servers": target.bootstrap})
        producer.produce(topic, value)
        assert producer.flush(30) == 0

    return write


@pytest.fixture
def start(spark, target, topic, tmp_path):
    """Start streams, each with a checkpoint of its own; stop what is left at the end."""
    queries = []

    def begin():
        frame = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", target.bootstrap)
            .options(subscribe=topic, startingOffsets="earliest")
            .load()
        )
        writer = frame.writeStream.format("noop").trigger(processingTime="100 milliseconds")
        place = tmp_path / str(len(queries))
        queries.append(writer.option("checkpointLocation", str(place)).start())
        return queries[-1]

    yield begin
    for each in queries:
        with suppress(Exception):
            each.stop()


def rows(query):
    return sum(each["numInputRows"] for each in query.recentProgress)


def test_streams_share_what_planners_import_and_nothing_else(start, produce):
    produce(b"one")
    before = planners()
    queries = [start() for _ in range(3)]
    until(lambda: all(rows(each) == 1 for each in queries), *queries)

    new = {number: parent for number, parent in planners().items() if number not in before}
    (server,) = set(new.values()) & planners().keys()
    workers = [number for number, parent in new.items() if parent == server]
    assert len(workers) == 3

    # A planner that is killed ends its own query.
    os.kill(workers[0], signal.SIGKILL)
    produce(b"two")
    until(lambda: sum(not each.isActive for each in queries) == 1)
    alive = [each for each in queries if each.isActive]
    until(lambda: all(rows(each) == 2 for each in alive), *alive)

    # The one that they were forked from ends none, and the next query has another.
    os.kill(server, signal.SIGKILL)
    alive.append(start())
    produce(b"three")
    until(lambda: all(rows(each) == 3 for each in alive), *alive)
    assert server not in processes()

    # A planner ends with its query.
    for each in alive:
        each.stop()
    until(lambda: not set(workers) & processes().keys())


def test_a_query_that_ends_ends_its_planner_alone(start, produce):
    """Spark sends the process that it started a SIGTERM, and the others were forked from that."""
    produce(b"one")
    queries = [start() for _ in range(2)]
    until(lambda: all(rows(each) == 1 for each in queries), *queries)
    queries[0].stop()
    produce(b"two")
    until(lambda: rows(queries[1]) == 2, *queries)
    third = start()
    until(lambda: rows(third) == 2, third)


def test_a_driver_that_is_killed_leaves_no_process_behind(target, topic, produce, tmp_path):
    produce(b"one")
    command = [sys.executable, "-c", KILLED, target.bootstrap, topic, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as driver:
        try:
            assert driver.stdout.readline() == b"running\n", driver.stderr.read()
            there = processes()
            of_it = {driver.pid}
            while more := {n for n, (parent, _) in there.items() if parent in of_it} - of_it:
                of_it |= more
            assert len(planners(driver.pid)) == 3
        finally:
            driver.kill()
    until(lambda: not of_it & processes().keys())
