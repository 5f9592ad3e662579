"""One group of a campaign: its members' processes, and what both sides say of who owns what."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from tests.campaigns.mixed.judge import Judge
from tests.campaigns.mixed.owners_in_log import owners_in_log
from tools.kafka_peer import libraries

TOPIC = "numbers"
MIXED = Path(__file__).resolve().parent
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
HUNG_SECONDS = 45
"""Now and then all threads of a process stand still while a confluent-kafka member closes."""


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
