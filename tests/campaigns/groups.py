"""Members of one group come, go and die, and the broker is killed: is every record read, and every
partition owned once?

    python tests/campaigns/groups.py [--members 50] [--partitions 100] [--seconds 300] [--seed 1]

The members are our own client's (range assignor), many on one event loop; each round one joins,
leaves, or dies without a word, and now and then the broker is killed with SIGKILL and started
again. A producer writes numbers all the time. Every member writes down what it owned in which
generation and what it read, and commits. Checked: no two members own a partition in one generation;
generations grow; every number that was acknowledged is read; at the end the group's committed
offsets are the logs' ends. Prints a JSON report; exit code 1 when a promise was broken.
"""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import Fetcher
from ottla.client.asyncio.groups import Groups
from ottla.client.asyncio.member import GroupMember
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.client.wire.reading import read_records
from ottla.client.wire.settings import Address, ClientSettings
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from tools.ottla_peer import OttlaPeer
from tools.wire_client import Closed, WireClient, batch

TOPIC, GROUP = "numbers", "crowd"
SESSION_TIMEOUT_MS = 6000


class Campaign:
    """One run: the broker, the members, and what was seen."""

    def __init__(self, options: argparse.Namespace, data: Path) -> None:
        self.options = options
        self.random = random.Random(options.seed)
        self.peer = OttlaPeer(data, {"group.initial.rebalance.delay.ms": 0})
        self.settings = ClientSettings()
        self.members: dict[int, asyncio.Task[None]] = {}
        self.owners: dict[tuple[int, TopicPartition], int] = {}
        """Who owned a partition in a generation."""
        self.read: set[int] = set()
        self.sent: set[int] = set()
        self.problems: list[str] = []
        self.counts = {"joins": 0, "leaves": 0, "deaths": 0, "kills": 0, "generations": 0}
        self.next_id = 0
        self.is_producing = True

    async def run(self) -> None:
        """Start, let things happen, let them settle, check."""
        await asyncio.to_thread(self.peer.start)
        self.peer._asked_port = self.peer.port
        self.settings = ClientSettings(bootstrap=(Address("127.0.0.1", self.peer.port),))
        with WireClient(self.peer.bootstrap) as wire:
            wire.create_topic(TOPIC, self.options.partitions)
        producing = asyncio.create_task(self.produce())
        for _ in range(self.options.members):
            self.add()
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            await asyncio.sleep(self.random.uniform(0.2, 2.0))
            await self.happen()
        self.is_producing = False
        await producing
        await self.settle()

    async def happen(self) -> None:
        """Let one thing go right or wrong."""
        chance = self.random.random()
        if chance < 0.08:
            self.counts["kills"] += 1
            await asyncio.to_thread(self.peer.kill9)
            await asyncio.to_thread(self.peer.start)
        elif chance < 0.5 and len(self.members) > self.options.members // 2:
            number = self.random.choice(list(self.members))
            task = self.members.pop(number)
            task.cancel("die" if chance < 0.25 else "leave")
        elif len(self.members) < self.options.members:
            self.add()

    def add(self) -> None:
        self.next_id += 1
        self.counts["joins"] += 1
        task = asyncio.create_task(self.member(self.next_id))
        self.members[self.next_id] = task

    async def member(self, number: int) -> None:
        """Join, read, commit, for ever."""
        while True:
            with contextlib.suppress(OttlaError):
                async with Cluster(self.settings) as cluster:
                    member = GroupMember(
                        cluster, GROUP, frozenset([TOPIC]), session_timeout_ms=SESSION_TIMEOUT_MS
                    )
                    try:
                        await self.live(number, cluster, member)
                    except asyncio.CancelledError as end:
                        if "leave" in end.args:
                            self.counts["leaves"] += 1
                            await member.leave()
                        else:
                            self.counts["deaths"] += 1
                            await member._stop_heartbeats()
                        return
            await asyncio.sleep(0.2)

    async def live(self, number: int, cluster: Cluster, member: GroupMember) -> None:
        groups = Groups(cluster)
        while True:
            partitions = await member.join()
            self.note_owner(number, member._generation, partitions)
            committed = await groups.committed(GROUP, partitions)
            positions = {
                each: committed[each].offset if each in committed else 0 for each in partitions
            }
            async with Fetcher(cluster) as fetcher:
                await fetcher.assign(positions)
                await self.consume(member, fetcher)

    async def consume(self, member: GroupMember, fetcher: Fetcher) -> None:
        batches = fetcher.batches()
        changed = asyncio.create_task(member.must_join.wait())
        coming: asyncio.Task[object] | None = None
        try:
            while not changed.done():
                if coming is None and fetcher._reading is not None:
                    coming = asyncio.create_task(anext(batches))
                waiting = [changed] if coming is None else [changed, coming]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if coming is not None and coming.done():
                    found, coming = coming.result(), None
                    values = [
                        int(record.value)
                        for record in read_records(found.records, found.offset, found.aborted)
                    ]
                    self.read.update(values)  # Done with, then committed: at least once.
                    await member.commit({found.partition: found.next_offset})
        finally:
            changed.cancel()
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    def note_owner(self, number: int, generation: int, partitions: list[TopicPartition]) -> None:
        self.counts["generations"] = max(self.counts["generations"], generation)
        for each in partitions:
            owner = self.owners.setdefault((generation, each), number)
            if owner != number:
                self.problems.append(f"{each} of generation {generation}: {owner} and {number}")

    async def produce(self) -> None:
        """Write numbers, each once; only what is acknowledged counts."""
        number = 0
        wire: WireClient | None = None
        while self.is_producing:
            partition = number % self.options.partitions
            try:
                if wire is None:
                    wire = await asyncio.to_thread(WireClient, self.peer.bootstrap)
                records = batch([b"%d" % number])
                answer = await asyncio.to_thread(wire.produce, TOPIC, records, partition)
                if answer["error_code"] == 0:
                    self.sent.add(number)
            except (Closed, OSError):
                wire = None
                await asyncio.sleep(0.1)
            number += 1
        if wire is not None:
            wire.close()

    async def settle(self) -> None:
        """Wait until all is read, and look at what was committed."""
        deadline = time.monotonic() + 90
        async with Cluster(self.settings) as cluster:
            every = [TopicPartition(TOPIC, index) for index in range(self.options.partitions)]
            ends = await cluster.list_offsets(dict.fromkeys(every, LATEST))
            starts = await cluster.list_offsets(dict.fromkeys(every, EARLIEST))
            wanted = {each: ends[each].offset for each in every if ends[each] > starts[each]}
            while True:
                found = await Groups(cluster).committed(GROUP)
                late = {each for each in wanted if each not in found}
                late |= {each for each in found if found[each].offset != wanted.get(each, 0)}
                if not late and self.sent <= self.read:
                    break
                if time.monotonic() > deadline:
                    self.problems.append(f"{len(late)} partitions are not read to their ends")
                    self.problems.append(f"{len(self.sent - self.read)} numbers were never read")
                    break
                await asyncio.sleep(0.5)
            while True:  # Members that died are missed when their sessions are over.
                group = await Groups(cluster).describe(GROUP)
                owned = sorted(each for member in group.members for each in member.partitions)
                if owned == every:
                    break
                if time.monotonic() > deadline:
                    self.problems.append(f"{len(owned)} of {len(every)} partitions have an owner")
                    break
                await asyncio.sleep(0.5)
        for task in self.members.values():
            task.cancel("leave")
        await asyncio.gather(*self.members.values(), return_exceptions=True)

    def report(self) -> dict[str, object]:
        return {
            **self.counts,
            "sent": len(self.sent),
            "read": len(self.read),
            "problems": self.problems[:20],
        }


def main() -> int:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="groups-"))
    campaign = Campaign(options, root / "data")
    try:
        asyncio.run(campaign.run())
    finally:
        campaign.peer.kill9()
        shutil.rmtree(root, ignore_errors=True)
    report = campaign.report()
    print(json.dumps(report, indent=2))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
