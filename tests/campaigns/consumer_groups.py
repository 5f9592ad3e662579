"""Members of a KIP-848 group come, go, die and lose answers, and the broker is killed: does anybody
ever own what another owns?

    python tests/campaigns/consumer_groups.py [--members 50] [--partitions 100] [--seconds 60]
                                              [--seed 1]

The members are heartbeats only, sent one after the other by one process, which so knows at every
moment what each of them believes to own. A third of them are static. Every 8 seconds the broker is
killed with SIGKILL and started again. Checked: after every answer no partition is owned twice; once
the faults are over the group is stable, everything is owned, and shares differ by one at most.
Prints a JSON report; exit code 1 when a promise was broken.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

TOPIC, GROUP = "numbers", "crowd"
OPTIONS = {
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.assignment.interval.ms": 200,
}
REBALANCE_TIMEOUT_MS = 5_000
NOT_READY = frozenset((14, 15, 16))
KILL_EVERY_SECONDS = 8.0
SETTLE_SECONDS = 30.0
STATIC_SHARE, LOST_SHARE = 0.3, 0.05
JOIN_CHANCE, LEAVE_CHANCE, DEATH_CHANCE = 0.2, 0.01, 0.005


class Member:
    """What one client knows."""

    def __init__(self, number: int, *, is_static: bool) -> None:
        self.member_id = f"member-{number}"
        self.instance_id = f"instance-{number}" if is_static else None
        self.forget()

    def forget(self) -> None:
        """Begin anew, without partitions."""
        self.epoch = 0
        self.owned: set[int] = set()
        self.has_missed = False


class Campaign:
    """One run: the broker, the members, and what was seen."""

    def __init__(self, options: argparse.Namespace, data: Path) -> None:
        self.options = options
        self.random = random.Random(options.seed)
        self.peer = OttlaPeer(data, OPTIONS)
        self.members: list[Member] = []
        self.problems: list[str] = []
        self.counts = dict.fromkeys(("beats", "joins", "leaves", "deaths", "lost", "kills"), 0)
        self.refusals: dict[int, int] = {}
        self.next_number = 0
        self.topic_id = uuid.UUID(int=0)

    def run(self) -> dict[str, object]:
        """Run for the time asked for, let all settle, and return the report."""
        self.peer.start()
        try:
            self.wire = WireClient(self.peer.bootstrap)
            self.topic_id = self.wire.create_topic(TOPIC, self.options.partitions)
            self.wait_for_coordinator()
            end = time.monotonic() + self.options.seconds
            next_kill = time.monotonic() + KILL_EVERY_SECONDS
            while time.monotonic() < end and not self.problems:
                self.come_and_go()
                if time.monotonic() > next_kill:
                    next_kill = time.monotonic() + KILL_EVERY_SECONDS
                    self.kill_broker()
                for member in self.random.sample(self.members, min(len(self.members), 10)):
                    self.beat(member, may_lose=True)
            seconds = self.settle()
        finally:
            self.peer.kill9()
        return {
            "counts": self.counts,
            "refusals": self.refusals,
            "settled_seconds": round(seconds, 1),
            "members": len(self.members),
            "problems": self.problems,
        }

    def wait_for_coordinator(self) -> None:
        """Wait until the group's coordinator can be asked."""
        while True:
            asked = {"key_type": 0, "coordinator_keys": [GROUP]}
            answer = self.wire.call("find_coordinator", 4, **asked)
            if answer["coordinators"][0]["error_code"] == 0:
                return
            time.sleep(0.1)

    def come_and_go(self) -> None:
        """Let a member join, leave, or vanish."""
        if len(self.members) < self.options.members and self.random.random() < JOIN_CHANCE:
            is_static = self.random.random() < STATIC_SHARE
            self.members.append(Member(self.next_number, is_static=is_static))
            self.next_number += 1
            self.counts["joins"] += 1
        if self.members and self.random.random() < LEAVE_CHANCE:
            member = self.take_one()
            self.counts["leaves"] += 1
            if member.epoch:
                self.send(member, member_epoch=-1, topic_partitions=None)
        if self.members and self.random.random() < DEATH_CHANCE:
            self.take_one()
            self.counts["deaths"] += 1

    def take_one(self) -> Member:
        """Take out any member: it reads no more."""
        member = self.random.choice(self.members)
        self.members.remove(member)
        return member

    def kill_broker(self) -> None:
        """Kill the broker, and start it where its clients find it."""
        self.counts["kills"] += 1
        self.peer.kill9()
        self.peer._asked_port = self.peer.port
        self.peer.start()
        self.wire = WireClient(self.peer.bootstrap)
        for member in self.members:
            member.has_missed = True

    def send(self, member: Member, **fields: object) -> dict[str, object]:
        """Send one heartbeat."""
        asked: dict[str, object] = {"subscribed_topic_names": None} | fields
        self.counts["beats"] += 1
        return self.wire.call(
            "consumer_group_heartbeat",
            1,
            group_id=GROUP,
            member_id=member.member_id,
            instance_id=member.instance_id,
            **asked,
        )

    def beat(self, member: Member, *, may_lose: bool) -> None:
        """Send a heartbeat and do as it is told, unless the answer gets lost."""
        owned = [{"topic_id": self.topic_id, "partitions": sorted(member.owned)}]
        fields: dict[str, object] = {"topic_partitions": owned if member.owned else []}
        if member.epoch == 0 or member.has_missed:
            fields["rebalance_timeout"] = REBALANCE_TIMEOUT_MS
            fields["subscribed_topic_names"] = [TOPIC]
        answer = self.send(member, member_epoch=member.epoch, **fields)
        if may_lose and self.random.random() < LOST_SHARE:
            self.counts["lost"] += 1
            member.has_missed = True
            return
        code = int(str(answer["error_code"]))
        if code in NOT_READY:
            return
        if code:
            self.refusals[code] = self.refusals.get(code, 0) + 1
            member.forget()
            return
        member.has_missed = False
        member.epoch = int(str(answer["member_epoch"]))
        assignment = answer["assignment"]
        if isinstance(assignment, dict):
            topics = assignment["topic_partitions"]
            member.owned = {number for topic in topics for number in topic["partitions"]}
            self.check_owners()

    def check_owners(self) -> None:
        """Note every partition that two members believe to own."""
        owners: dict[int, str] = {}
        for member in self.members:
            for number in member.owned:
                other = owners.setdefault(number, member.member_id)
                if other != member.member_id:
                    self.problems.append(f"{number}: {other} and {member.member_id}")

    def settle(self) -> float:
        """Send heartbeats until the group is stable; return how long that took."""
        started = time.monotonic()
        while not self.is_settled():
            if time.monotonic() - started > SETTLE_SECONDS:
                self.problems.append("the group did not settle")
                break
            for member in self.members:
                self.beat(member, may_lose=False)
        return time.monotonic() - started

    def is_settled(self) -> bool:
        """Tell whether everything is owned, evenly, and the coordinator thinks so, too."""
        (group,) = self.wire.call("consumer_group_describe", 1, group_ids=[GROUP])["groups"]
        sizes = [len(member.owned) for member in self.members]
        return (
            group["group_state"] == "Stable"
            and len(group["members"]) == len(self.members)
            and sum(sizes) == self.options.partitions
            and max(sizes) - min(sizes) <= 1
        )


def main() -> int:
    """Run one campaign."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = Campaign(options, Path(directory) / "data").run()
    print(json.dumps(report, indent=1))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
