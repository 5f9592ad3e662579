"""A process with members of one group in it: confluent-kafka's, kafka-python's or aiokafka's.

    python members.py KIND BOOTSTRAP TOPIC GROUP ASSIGNOR

Reads commands from stdin (``join NUMBER``, ``leave NUMBER``, ``quit``) and writes what happens to
its members to stdout: one JSON object a line, as read by ``events.py``, each with the time of the
machine's monotonic clock. A member commits what it has read before it reads on, and says so before
and after, so a process that is killed has said everything that the broker may know of it.
Members.java is the same for Java's consumer.
"""

import asyncio
import contextlib
import json
import logging
import os
import struct
import sys
import threading
import time

POLL_SECONDS = 0.5
PAUSE_SECONDS = 0.2
"""Between two polls: members must be many, not fast."""
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_MS = 1_000
REBALANCE_TIMEOUT_MS = 30_000
FENCED = {22, 25, 82, 110}
"""Refusals of a commit that only somebody who is no member any more gets."""


def say(member, what, **more):
    line = {"at": time.monotonic_ns(), "member": member, "what": what, **more}
    os.write(1, (json.dumps(line, separators=(",", ":")) + "\n").encode())


class Progress:
    """What one member has read and has still to commit."""

    def __init__(self, number):
        self.number = number
        self.pending = {}

    def note(self, found):
        """Say what was read: ``found`` is (partition, offset, value) in the order of reading."""
        ranges = {}
        wrong = 0
        for partition, offset, value in found:
            wrong += value != b"%d" % offset
            known = ranges.setdefault(partition, [])
            if known and known[-1][1] == offset:
                known[-1][1] += 1
            else:
                known.append([offset, offset + 1])
            self.pending[partition] = offset + 1
        if ranges:
            flat = [[number, *each] for number, parts in ranges.items() for each in parts]
            say(self.number, "read", ranges=flat, wrong=wrong)

    def committing(self):
        offsets = dict(self.pending)
        say(self.number, "committing", offsets=sorted(offsets.items()))
        return offsets

    def committed(self, offsets):
        say(self.number, "committed")
        for partition, offset in offsets.items():
            if self.pending.get(partition) == offset:
                del self.pending[partition]

    def refused(self, error, code):
        say(self.number, "refused", error=str(error)[:200], fenced=code in FENCED)

    def gone(self, what, partitions, generation=-1):
        for partition in partitions:
            self.pending.pop(partition, None)
        say(self.number, what, partitions=sorted(partitions), generation=generation)


class Confluent(threading.Thread):
    """A member by librdkafka."""

    def __init__(self, number, bootstrap, topic, group, assignor):
        super().__init__(daemon=True)
        self.number = number
        self.topic = topic
        self.options = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": REBALANCE_TIMEOUT_MS,
            "fetch.wait.max.ms": 500,
            "queued.min.messages": 1000,
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,
            "error_cb": self.failed,
        }
        if assignor.startswith("consumer"):
            self.options["group.protocol"] = "consumer"
            self.options["group.remote.assignor"] = assignor.partition(":")[2] or "uniform"
        else:
            self.options |= {
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        self.progress = Progress(number)
        self.leaving = threading.Event()
        self.is_fatal = False

    def run(self):
        self.live()
        while self.is_fatal and not self.leaving.is_set():
            self.is_fatal = False
            self.live()

    def live(self):
        """Be a member until told to leave, or until librdkafka gives up (as after a long sleep)."""
        from confluent_kafka import Consumer

        consumer = Consumer(self.options)
        self.progress.pending.clear()
        consumer.subscribe(
            [self.topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )
        say(self.number, "started")
        while not self.leaving.is_set() and not self.is_fatal:
            found = consumer.consume(500, POLL_SECONDS)
            self.is_fatal |= any(m.error() is not None and m.error().fatal() for m in found)
            rows = [(m.partition(), m.offset(), m.value()) for m in found if m.error() is None]
            self.progress.note(rows)
            self.commit(consumer)
            time.sleep(PAUSE_SECONDS)
        say(self.number, "leaving")
        consumer.close()
        say(self.number, "left")

    def commit(self, consumer):
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        if not self.progress.pending:
            return
        offsets = self.progress.committing()
        asked = [TopicPartition(self.topic, *each) for each in offsets.items()]
        try:
            for each in consumer.commit(offsets=asked, asynchronous=False):
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            self.is_fatal |= error.args[0].fatal() or error.args[0].code() == KafkaError._FATAL
            self.progress.refused(error.args[0].str(), error.args[0].code())
        else:
            self.progress.committed(offsets)

    def failed(self, error):
        if error.fatal():
            self.is_fatal = True
            say(self.number, "failed", error=error.str()[:200])

    def assigned(self, consumer, partitions):
        # librdkafka's own form of the metadata: "CGMDv2:", the generation, and names.
        (generation,) = struct.unpack_from("<i", consumer.consumer_group_metadata(), 7)
        self.say_assigned(partitions, generation, consumer.memberid())

    def say_assigned(self, partitions, generation, member_id):
        numbers = sorted(one.partition for one in partitions)
        say(self.number, "assigned", partitions=numbers, generation=generation, id=member_id)

    def revoked(self, consumer, partitions):
        self.commit(consumer)
        self.progress.gone("revoked", {one.partition for one in partitions})

    def lost(self, consumer, partitions):
        self.progress.gone("lost", {one.partition for one in partitions})


class KafkaPython(threading.Thread):
    """A member by kafka-python."""

    def __init__(self, number, bootstrap, topic, group, assignor):
        super().__init__(daemon=True)
        self.number = number
        self.topic = topic
        self.options = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "max_poll_interval_ms": REBALANCE_TIMEOUT_MS,
            "partition_assignment_strategy": [self.assignor(assignor)],
        }
        self.is_eager = not assignor.startswith("cooperative")
        self.progress = Progress(number)
        self.leaving = threading.Event()

    @staticmethod
    def assignor(name):
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        return {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }[name]

    def connected(self):
        """Return the consumer, as soon as there is a broker to learn its versions from."""
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        while True:
            with contextlib.suppress(KafkaError):
                return KafkaConsumer(**self.options)
            time.sleep(PAUSE_SECONDS)

    def run(self):
        from kafka.consumer.subscription_state import ConsumerRebalanceListener
        from kafka.errors import KafkaError

        consumer = self.connected()
        progress = self.progress
        is_eager = self.is_eager

        class Listener(ConsumerRebalanceListener):
            """Called inside of poll, when all that was read has been committed, or refused."""

            def on_partitions_assigned(self, assigned):
                generation = consumer._coordinator._generation
                numbers = sorted(one.partition for one in assigned)
                now = {"generation": generation.generation_id, "id": generation.member_id}
                say(progress.number, "assigned", partitions=numbers, **now)

            def on_partitions_revoked(self, revoked):
                progress.gone("revoked", {one.partition for one in revoked})
                if is_eager:
                    # kafka-python keeps the positions of what it gets again, also when it has
                    # missed the generation in which somebody else has read on from there.
                    consumer._subscription.assign_from_subscribed([])

            def on_partitions_lost(self, lost):
                progress.gone("lost", {one.partition for one in lost})

        consumer.subscribe([self.topic], listener=Listener())
        say(self.number, "started")
        while not self.leaving.is_set():
            found = {}
            with contextlib.suppress(KafkaError):
                found = consumer.poll(int(POLL_SECONDS * 1000), max_records=500)
            progress.note((m.partition, m.offset, m.value) for rows in found.values() for m in rows)
            self.commit(consumer)
            time.sleep(PAUSE_SECONDS)
        say(self.number, "leaving")
        consumer.close(autocommit=False)
        say(self.number, "left")

    def commit(self, consumer):
        from kafka import TopicPartition
        from kafka.errors import KafkaError
        from kafka.structs import OffsetAndMetadata

        if not self.progress.pending:
            return
        offsets = self.progress.committing()
        asked = {
            TopicPartition(self.topic, number): OffsetAndMetadata(offset, "", -1)
            for number, offset in offsets.items()
        }
        try:
            consumer.commit(asked, timeout_ms=10_000)
        except KafkaError as error:
            self.progress.refused(repr(error), code_of(error))
        else:
            self.progress.committed(offsets)


class AioKafka:
    """A member by aiokafka, a task on the loop that all of the process share."""

    loop = None

    def __init__(self, number, bootstrap, topic, group, assignor):
        self.number = number
        self.topic = topic
        self.assignor_name = assignor
        self.options = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "max_poll_interval_ms": REBALANCE_TIMEOUT_MS,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        }
        self.progress = Progress(number)
        self.leaving = threading.Event()

    def start(self):
        if AioKafka.loop is None:
            AioKafka.loop = asyncio.new_event_loop()
            threading.Thread(target=AioKafka.loop.run_forever, daemon=True).start()
        self.future = asyncio.run_coroutine_threadsafe(self.live(), AioKafka.loop)

    def join(self, seconds):
        with contextlib.suppress(TimeoutError):
            self.future.result(seconds)

    async def live(self):
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.errors import KafkaError

        assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
        strategy = [assignors[self.assignor_name]]
        while True:
            consumer = AIOKafkaConsumer(partition_assignment_strategy=strategy, **self.options)
            consumer.subscribe([self.topic], listener=self.listener(consumer))
            say(self.number, "started")
            try:
                await consumer.start()
                await self.consume(consumer)
                say(self.number, "leaving")
                await consumer.stop()
                break
            except KafkaError as error:
                say(self.number, "failed", error=repr(error)[:200])
                await consumer.stop()
                await asyncio.sleep(PAUSE_SECONDS)
        say(self.number, "left")

    async def consume(self, consumer):
        from aiokafka.errors import KafkaError

        self.busy = asyncio.Lock()
        while not self.leaving.is_set():
            found = {}
            async with self.busy:  # Groups change in a task of aiokafka's, not in getmany.
                with contextlib.suppress(KafkaError):
                    found = await consumer.getmany(timeout_ms=0, max_records=500)
                self.progress.note(
                    (m.partition, m.offset, m.value) for rows in found.values() for m in rows
                )
                await self.commit(consumer)
            await asyncio.sleep(POLL_SECONDS + PAUSE_SECONDS)

    def listener(self, consumer):
        from aiokafka import ConsumerRebalanceListener

        progress = self.progress
        member = self
        self.busy = asyncio.Lock()

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_assigned(self, assigned):
                coordinator = consumer._coordinator
                numbers = sorted(one.partition for one in assigned)
                now = {"generation": coordinator.generation, "id": coordinator.member_id}
                say(progress.number, "assigned", partitions=numbers, **now)

            async def on_partitions_revoked(self, revoked):
                async with member.busy:
                    await member.commit(consumer)
                    was_member = consumer._coordinator.generation > 0
                    what = "revoked" if was_member else "lost"
                    progress.gone(what, {one.partition for one in revoked})

        return Listener()

    async def commit(self, consumer):
        from aiokafka import TopicPartition
        from aiokafka.errors import KafkaError

        # Who was thrown out has no generation: what aiokafka sends then is a commit from outside.
        if not self.progress.pending or consumer._coordinator.generation <= 0:
            return
        offsets = self.progress.committing()
        asked = {TopicPartition(self.topic, *each[:1]): each[1] for each in offsets.items()}
        try:
            await asyncio.wait_for(consumer.commit(asked), 10)
        except (KafkaError, TimeoutError) as error:
            self.progress.refused(repr(error), code_of(error))
        else:
            self.progress.committed(offsets)


def code_of(error):
    """Return Kafka's code of the error, or of the error that it wraps; -1 if there is none."""
    for each in (error, error.__cause__, *error.args):
        code = getattr(each, "errno", None)
        if isinstance(code, int) and code > 0:
            return code
    return -1


KINDS = {"confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": AioKafka}


def main():
    logging.disable(logging.CRITICAL)
    kind, *where = sys.argv[1:]
    members = {}
    for line in sys.stdin:
        match line.split():
            case ["join", number]:
                members[number] = KINDS[kind](int(number), *where)
                members[number].start()
            case ["leave", number]:
                members.pop(number).leaving.set()
            case ["quit"]:
                break
    for member in members.values():
        member.leaving.set()
    for member in members.values():
        member.join(20)
    os._exit(0)  # Nobody waits for the threads of libraries.


if __name__ == "__main__":
    main()
