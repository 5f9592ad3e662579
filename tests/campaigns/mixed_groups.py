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
import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.campaigns.mixed.judge import Judge
from tests.campaigns.mixed.owners_in_log import owners_in_log
from tools.kafka_peer import KafkaPeer, libraries
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

TOPIC = "numbers"
MIXED = Path(__file__).resolve().parent / "mixed"
OPTIONS = {
    "group.initial.rebalance.delay.ms": 500,
    "group.consumer.session.timeout.ms": 8_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
}
KAFKA_OPTIONS = {
    "group.consumer.min.session.timeout.ms": 8_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
}
CLASSIC = {
    "confluent": (5, 0.3),
    "kafka-python": (4, 0.25),
    "aiokafka": (4, 0.2),
    "java": (7, 0.25),
}
"""Who takes part: members of a process, and share of the group."""
COOPERATIVE = {"confluent": (6, 0.6), "java": (10, 0.4)}
ALONE = {"kafka-python": (5, 1)}
CONSUMER = {"confluent": (6, 0.6), "java": (10, 0.4)}
SETTLE_SECONDS = 240
HUNG_SECONDS = 45
"""Now and then all threads of a process stand still while a confluent-kafka member closes."""
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "message.timeout.ms": 600_000,
    "reconnect.backoff.max.ms": 1000,
    "log_level": 0,
}


class Process:
    """A process of members, and what they say."""

    def __init__(self, group, kind, numbers):
        self.group = group
        self.kind = kind
        self.numbers = numbers
        self.members = set()
        """Those that were told to join, and not to leave."""
        self.started = set()
        """All members of this process's life so far."""
        self.popen = None
        self.back_at = 0.0
        """When it is to be started again, if it was killed, or to go on, if it was stopped."""
        self.is_stopped = False

    def start(self):
        self.started.clear()
        self.heard_at = time.monotonic()
        self.popen = subprocess.Popen(
            self.group.command(self.kind),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.group.campaign.errors,
            text=True,
        )
        self.reader = threading.Thread(target=self.read, args=(self.popen,), daemon=True)
        self.reader.start()

    def read(self, popen):
        for line in popen.stdout:
            self.heard_at = time.monotonic()
            if line.endswith("\n"):  # The last one of a killed process may be half a line.
                self.group.events.append(json.loads(line))

    def tell(self, *words):
        print(*words, file=self.popen.stdin, flush=True)

    def join(self, number):
        self.members.add(number)
        self.started.add(number)
        self.tell("join", number)

    def leave(self, number):
        self.members.discard(number)
        self.tell("leave", number)

    def kill(self):
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()
        self.reader.join(10)
        at = time.monotonic_ns()
        self.group.events += [
            {"at": at, "member": number, "what": "killed"} for number in sorted(self.started)
        ]
        self.members.clear()
        self.popen = None
        self.is_stopped = False

    def stop(self):
        """Let it sleep: it will not know that its members' sessions are over."""
        self.is_stopped = True
        self.popen.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.is_stopped = False
        self.heard_at = time.monotonic()
        self.popen.send_signal(signal.SIGCONT)

    def is_hung(self):
        """Tell whether its members, all of them, have stood still, though they should not."""
        silent_seconds = time.monotonic() - self.heard_at
        return bool(self.members) and not self.is_stopped and silent_seconds > HUNG_SECONDS

    def quit(self):
        self.members.clear()
        with contextlib.suppress(BrokenPipeError):
            self.tell("quit")
            self.popen.stdin.close()

    def wait(self):
        """Wait until it has ended; one that hangs is killed."""
        try:
            self.popen.wait(HUNG_SECONDS)
            self.reader.join(10)
        except subprocess.TimeoutExpired:
            self.group.counts["processes hung"] += 1
            self.kill()
        self.popen = None


class Group:
    """The members of one group, what they said, and what the coordinator said of them."""

    def __init__(self, campaign, name, assignor):
        self.campaign = campaign
        self.name = name
        self.assignor = assignor
        self.is_classic = not assignor.startswith("consumer")
        self.events = []
        self.problems = []
        self.counts = Counter()
        self.server_generation = 0
        self.processes = []
        self.next_number = 0
        self.make_processes()

    def make_processes(self):
        kinds = CONSUMER if not self.is_classic else CLASSIC
        if self.assignor == "cooperative-sticky":
            kinds = COOPERATIVE if self.campaign.options.only != "kafka-python" else ALONE
        kinds = {kind: of for kind, of in kinds.items() if kind not in self.campaign.without}
        members = self.campaign.options.members
        total = sum(share for _, share in kinds.values())
        rest = members
        for index, (kind, (size, share)) in enumerate(kinds.items()):
            is_last = index == len(kinds) - 1
            count = rest if is_last else min(rest, max(1, round(members * share / total)))
            rest -= count
            while count > 0:
                self.processes.append(Process(self, kind, min(size, count)))
                count -= size

    def command(self, kind):
        campaign = self.campaign
        where = [campaign.peer.bootstrap, TOPIC, self.name, self.assignor]
        if kind == "java":
            quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m"]
            classpath = f"{campaign.classes}{os.pathsep}{libraries()}/*"
            return ["java", *quick, "-cp", classpath, "Members", *where]
        return [sys.executable, MIXED / "members.py", kind, *where]

    def size(self):
        return sum(len(process.members) for process in self.processes)

    def fill(self, process):
        while len(process.members) < process.numbers:
            self.next_number += 1
            process.join(self.next_number)

    def start(self):
        for process in self.processes:
            process.start()
            self.fill(process)

    def happen(self, chooser):
        """Let one thing happen to a member or a process."""
        awake = [one for one in self.processes if one.popen is not None and not one.is_stopped]
        busy = [process for process in awake if process.members]
        free = [process for process in awake if len(process.members) < process.numbers]
        chance = chooser.random()
        if chance < 0.2 and busy:
            process = chooser.choice(busy)
            if process.kind == "java" and chooser.random() < 0.6:
                return  # A JVM's start is dear.
            self.counts["processes killed"] += 1
            process.kill()
            process.back_at = time.monotonic() + chooser.uniform(0.5, 8)
        elif chance < 0.28 and busy:
            self.counts["processes stopped"] += 1
            process = chooser.choice(busy)
            process.stop()
            process.back_at = time.monotonic() + chooser.uniform(4, 16)
        elif chance < 0.6 and busy and self.size() > self.campaign.options.members // 2:
            process = chooser.choice(busy)
            process.leave(chooser.choice(sorted(process.members)))
        elif free:
            self.next_number += 1
            chooser.choice(free).join(self.next_number)

    def restart(self, *, everything=False):
        """Start the processes again whose time has come."""
        for process in self.processes:
            if process.is_stopped and (everything or time.monotonic() > process.back_at):
                process.go_on()
            if process.popen is None and (everything or time.monotonic() > process.back_at):
                process.start()
                self.fill(process)
            elif process.popen is not None and process.is_hung():
                self.counts["processes hung"] += 1
                process.kill()
            elif process.popen is not None and process.popen.poll() is not None:
                self.problems.append(f"{process.kind} ended with {process.popen.returncode}")
                process.kill()
            elif everything:
                self.fill(process)

    # ---- what the coordinator says ---------------------------------------------------------------

    def ask(self, wire):
        """Ask who owns what; return the owned partitions, or None when it cannot tell now."""
        if self.is_classic:
            (found,) = wire.call("describe_groups", 5, groups=[self.name])["groups"]
        else:
            (found,) = wire.call("consumer_group_describe", 1, group_ids=[self.name])["groups"]
        if found["error_code"]:
            return None
        if self.is_classic:
            owned = [
                number
                for member in found["members"]
                for number in partitions_of(member["member_assignment"])
            ]
        else:
            owned = self.check_epochs(found)
        self.counts["asked"] += 1
        twice = [number for number, count in Counter(owned).items() if count > 1]
        if twice:
            self.problems.append(f"{twice} have two owners: {found}"[:2000])
        return found["group_state"], len(found["members"]), sorted(owned)

    def check_epochs(self, found):
        """Look at what KIP-848 says of epochs; return all partitions that have an owner."""
        epoch = found["group_epoch"]
        if epoch < self.server_generation:
            self.problems.append(f"the group went from epoch {self.server_generation} to {epoch}")
        self.server_generation = epoch
        if found["assignment_epoch"] > epoch:
            self.problems.append(f"assignment of an epoch to come: {found}"[:2000])
        owned = []
        for member in found["members"]:
            if member["member_epoch"] > epoch:
                self.problems.append(f"member of an epoch to come: {member}"[:2000])
            for topic in member["assignment"]["topic_partitions"]:
                owned += topic["partitions"]
        return owned

    def committed(self, wire):
        topics = [{"name": TOPIC, "partition_indexes": self.campaign.every}]
        asked = [{"group_id": self.name, "topics": topics}]
        (found,) = wire.call("offset_fetch", 8, groups=asked, require_stable=True)["groups"]
        if found["error_code"]:
            return {}
        return {
            one["partition_index"]: one["committed_offset"]
            for one in found["topics"][0]["partitions"]
        }

    def report(self):
        judge = Judge(is_classic=self.is_classic)
        judge.take(self.events)
        ends = self.campaign.acked
        if not self.is_classic and self.campaign.options.target == "ottla":
            self.counts["steps in the log"], found = owners_in_log(
                self.campaign.peer.data, self.name
            )
            self.problems += found
        late = {each: end for each, end in ends.items() if judge.read_to[each] != end}
        if late:
            self.problems.append(f"not all was read, ends are {late}, read {dict(judge.read_to)}")
        return {
            "assignor": self.assignor,
            "processes": dict(Counter(process.kind for process in self.processes)),
            "joins": judge.counts["started"],
            "leaves": judge.counts["left"],
            "members killed": judge.counts["killed"],
            "generation": max(judge.generation, self.server_generation),
            "read": sum(judge.read_to.values()),
            **dict(self.counts),
            "counts": dict(sorted(judge.counts.items())),
            "errors": dict(judge.errors.most_common(12)),
            "problems": [*self.problems, *judge.problems][:30],
            "problem count": len(self.problems) + len(judge.problems),
        }


def partitions_of(assignment):
    """Decode the consumer protocol's assignment of one topic."""
    if not assignment:
        return []
    position = 2
    (topics,) = struct.unpack_from(">i", assignment, position)
    position += 4
    owned = []
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", assignment, position)
        position += 2 + size
        (count,) = struct.unpack_from(">i", assignment, position)
        owned += struct.unpack_from(f">{count}i", assignment, position + 4)
        position += 4 + 4 * count
    return owned


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
