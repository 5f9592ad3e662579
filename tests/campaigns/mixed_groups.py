"""Members of other people's making, mixed in one group, come, go and are killed, and so is the
broker: is every partition owned once, every record read, every commit kept?

    python tests/campaigns/mixed_groups.py [--assignor range] [--members 50] [--partitions 100]
        [--seconds 300] [--rate 300] [--seed 1] [--target ottla|kafka] [--without java]

``--assignor`` decides who takes part: ``range`` and ``roundrobin`` confluent-kafka, kafka-python,
aiokafka and Java; ``cooperative-sticky`` confluent-kafka and Java; ``consumer`` (the server's
``uniform``) and ``consumer:range``, KIP-848's protocol, the same two, for the others do not speak
it. (aiokafka has no cooperative assignor. kafka-python's does not say of which generation its
partitions are, so leaders of other makes take it for an owner of nothing: ``--only kafka-python``.)
Given more than once, there is a group of ``--members`` for each, at the same time on the topic.

Members are in processes of some members each (mixed/members.py, mixed/Members.java). Every second
or so one is told to leave, or one joins, or a process is killed with SIGKILL, to be started again
with its members a little later, or sleeps (SIGSTOP) until the others may have got what was its;
every half a minute the broker is killed. A producer (idempotent) writes into each record the offset
that it must get. What the members say is judged by the rules in mixed/judge.py. The coordinator is
asked every other second: it must never name two owners, nor may a KIP-848 coordinator's log,
replayed record by record (mixed/owners_in_log.py). At the end all members are there, everything is
read, and the committed offsets are the logs' ends; then all leave, the broker is killed once more,
and they still are. Prints a JSON report; exit code 1 when a promise was broken. Java takes part
where there is Java, with tools/kafka_peer.py's jars.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.campaigns.mixed.group import CLASSIC, MIXED, TOPIC, Group
from tests.campaigns.mixed.judge import Judge
from tools.kafka_peer import KafkaPeer, libraries
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

OPTIONS = {
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.session.timeout.ms": 8_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
}
KAFKA_OPTIONS = {
    "group.consumer.min.session.timeout.ms": 8_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
}
SETTLE_SECONDS = 240
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "message.timeout.ms": 600_000,
    "reconnect.backoff.max.ms": 1000,
    "log_level": 0,
}


class Campaign:
    """One run: the broker, the producer, the groups."""

    def __init__(self, options, root):
        self.options = options
        self.random = random.Random(options.seed)
        self.without = set(options.without)
        if options.only:
            self.without |= set(CLASSIC) - {options.only}
        self.every = list(range(options.partitions))
        self.acked = dict.fromkeys(self.every, 0)
        self.counts = Counter()
        self.problems = []
        self.is_producing = True
        self.work_seconds = self.wait_seconds = 0.0
        self.classes = root / "classes"
        self.errors = (root / "errors").open("wb")
        if options.target == "kafka":
            self.peer = KafkaPeer(root / "data", OPTIONS | KAFKA_OPTIONS)
        else:
            self.peer = OttlaPeer(root / "data", OPTIONS)
        self.groups = [
            Group(self, f"crowd-{index}-{assignor}", assignor)
            for index, assignor in enumerate(options.assignor)
        ]

    def compile(self):
        if any(one.kind == "java" for group in self.groups for one in group.processes):
            source = MIXED / "Members.java"
            compiled = ["javac", "-cp", f"{libraries()}/*", "-d", self.classes, source]
            subprocess.run(compiled, check=True)

    def run(self):
        self.compile()
        self.start_broker()
        self.peer._asked_port = self.peer.port
        try:
            with WireClient(self.peer.bootstrap) as wire:
                wire.create_topic(TOPIC, self.options.partitions)
            producing = threading.Thread(target=self.produce, daemon=True)
            producing.start()
            for group in self.groups:
                group.start()
            self.disturb()
            self.is_producing = False
            producing.join(120)
            self.settle()
            self.say_goodbye()
        finally:
            for group in self.groups:
                for process in group.processes:
                    if process.popen is not None:
                        process.kill()
            self.peer.kill9()

    def start_broker(self):
        self.peer.start(timeout_seconds=180)
        slowest = max(self.counts["slowest start in seconds"], self.peer.started_in_seconds)
        self.counts["slowest start in seconds"] = round(slowest, 1)

    def kill_broker(self):
        """Kill it, and add up what it worked, and what its loop had to wait for a processor."""
        self.work_seconds += self.peer.cpu_seconds()
        self.wait_seconds += (
            int(Path(f"/proc/{self.peer.pid}/schedstat").read_text().split()[1]) / 1e9
        )
        self.peer.kill9()

    def disturb(self):
        start = time.monotonic()
        last_kill, last_ask = start, start
        while time.monotonic() < start + self.options.seconds:
            time.sleep(self.random.uniform(0.3, 2 * self.options.pause - 0.3))
            for group in self.groups:
                group.happen(self.random)
                group.restart()
            now = time.monotonic()
            if now > last_kill + self.options.broker_seconds:
                last_kill = now
                self.counts["broker killed"] += 1
                self.kill_broker()
                time.sleep(self.random.uniform(0, 1.5))
                self.start_broker()
            elif now > last_ask + 2:
                last_ask = now
                self.ask(self.groups)

    def ask(self, groups):
        """Return each group's state and committed offsets; nothing if the broker is too slow."""
        try:
            with WireClient(self.peer.bootstrap) as wire:
                return {group: (group.ask(wire), group.committed(wire)) for group in groups}
        except OSError:
            self.counts["questions without an answer"] += 1
            return dict.fromkeys(groups, (None, {}))

    def produce(self):
        from confluent_kafka import Producer

        producer = Producer(PRODUCER | {"bootstrap.servers": self.peer.bootstrap})
        next_offsets = dict.fromkeys(self.every, 0)
        chooser = random.Random(self.options.seed)

        def answered(error, message):
            number = message.partition()
            if error is not None:
                self.problems.append(f"produce to {number}: {error}")
            elif message.offset() != self.acked[number]:
                self.problems.append(f"{number}: {message.offset()} is not {self.acked[number]}")
            self.acked[number] += 1

        while self.is_producing:
            for _ in range(max(1, self.options.rate // 10)):
                number = chooser.choice(self.every)
                value = b"%d" % next_offsets[number]
                producer.produce(TOPIC, value, partition=number, on_delivery=answered)
                next_offsets[number] += 1
            producer.poll(0)
            time.sleep(0.1)
        if producer.flush(100):
            self.problems.append("some records were never acknowledged")

    def settle(self):
        """Bring all members back, and wait until they own all and have committed all."""
        started = time.monotonic()
        waiting = list(self.groups)
        while waiting:
            time.sleep(1)
            for group in waiting:
                group.restart(everything=True)
            states = self.ask(waiting)
            waiting = [group for group in waiting if not self.is_settled(group, *states[group])]
            if time.monotonic() > started + SETTLE_SECONDS:
                for group in waiting:
                    state, offsets = states[group]
                    late = {each: self.acked[each] - offsets.get(each, 0) for each in self.every}
                    late = {each: count for each, count in late.items() if count}
                    group.problems.append(f"not settled: {state}, lag {late}")
                break
        self.counts["settled in seconds"] = round(time.monotonic() - started)

    def is_settled(self, group, state, offsets):
        wanted = {each: end or -1 for each, end in self.acked.items()}
        return (
            state == ("Stable", self.options.members, self.every)
            and {each: offsets.get(each, -1) for each in self.every} == wanted
        )

    def say_goodbye(self):
        """Have all members leave; what is committed stays, also when the broker is killed."""
        for group in self.groups:
            owners = self.owners(group)
            if any(len(owners.get(each, [])) != 1 for each in self.every):
                group.problems.append(f"at the end these own: {owners}")
            for process in group.processes:
                process.quit()
        for group in self.groups:
            for process in group.processes:
                process.wait()
        self.kill_broker()
        self.start_broker()
        deadline = time.monotonic() + 60
        for group in self.groups:
            offsets, state = {}, None
            while time.monotonic() < deadline and not offsets:
                state, offsets = self.ask([group])[group]
                time.sleep(0.2)
            wanted = {each: end or -1 for each, end in self.acked.items()}
            if offsets != wanted:
                group.problems.append(f"committed {offsets}, not {wanted}")
            if state is None or state[:2] != ("Empty", 0):
                group.problems.append(f"the group is not empty: {state}")

    def owners(self, group):
        judge = Judge(is_classic=group.is_classic)
        judge.take(list(group.events))
        return judge.owners()

    def report(self):
        groups = {group.name: group.report() for group in self.groups}
        return {
            "target": self.options.target,
            "seed": self.options.seed,
            "seconds": self.options.seconds,
            "members": self.options.members,
            "partitions": self.options.partitions,
            "written": sum(self.acked.values()),
            **self.counts,
            "broker worked for seconds": round(self.work_seconds, 1),
            "its loop waited for a processor for seconds": round(self.wait_seconds, 1),
            "groups": groups,
            "problems": self.problems[:20],
            "problem count": len(self.problems)
            + sum(each["problem count"] for each in groups.values()),
        }


def main():
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--assignor", action="append")
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rate", type=int, default=300, help="records per second")
    parser.add_argument("--pause", type=float, default=1.5, help="mean seconds between two events")
    parser.add_argument("--broker-seconds", type=float, default=35, help="between two kills of it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=("ottla", "kafka"), default="ottla")
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--only", choices=tuple(CLASSIC))
    parser.add_argument("--keep", type=Path, help="directory to leave events and the broker's in")
    options = parser.parse_args()
    options.assignor = options.assignor or ["range"]
    if shutil.which("javac") is None:
        options.without.append("java")
    root = options.keep or Path(tempfile.mkdtemp(prefix="mixed-groups-"))
    root.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options, root)
    try:
        campaign.run()
        report = campaign.report()
    finally:
        campaign.errors.close()
        if options.keep:
            for group in campaign.groups:
                lines = [json.dumps(event) for event in group.events]
                (root / f"{group.name}.jsonl").write_text("\n".join(lines))
        else:
            shutil.rmtree(root, ignore_errors=True)
    print(json.dumps(report, indent=1))
    return 1 if report["problem count"] else 0


if __name__ == "__main__":
    sys.exit(main())
