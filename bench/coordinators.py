"""How long the coordinators hold the loop: ``python bench/coordinators.py``.

A broker in this process, its files in memory, and its group coordinator asked directly, without
the network: large groups of both protocols, all their sessions over at once, many groups with many
offsets loaded, topics deleted that all of them have read. Of each: the longest thing that the loop
ran, in CPU of its thread (so a busy machine tells the same), and how long all of it took.
``--members 10000 --groups 10000 --only classic,load``.
"""

import argparse
import asyncio
import gc
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.coordinator.group.classic import events
from ottla.coordinator.group.classic.group import Protocol
from ottla.coordinator.group.consumer.machine import Heartbeat
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.shard import ShardState
from ottla.errors import KafkaError
from ottla.handlers.apis.leave_group import MEMBERS_AT_A_TIME
from ottla.ids import TopicId
from ottla.pending import Pending, outcome_of
from tools.loop_meter import LoopMeter
from tools.wire_client import WireClient

METADATA = struct.pack(">hih", 1, 1, 1) + b"t" + struct.pack(">ii", -1, 0)
PROTOCOLS = (Protocol("range", METADATA),)
AT_A_TIME = 20
"""Requests that come in one turn of the loop."""


async def all_of(pendings: list[Pending]) -> list:
    """Return what they give; raise what one of them fails with."""
    found = []
    for one in pendings:
        found.append(await outcome_of(one))
        if not len(found) % AT_A_TIME:
            await asyncio.sleep(0)
    return found


async def send(count: int, ask: Callable[[int], Pending]) -> list[Pending]:
    """Ask so often, some in each turn of the loop."""
    asked = []
    for number in range(count):
        asked.append(ask(number))
        if not number % AT_A_TIME:
            await asyncio.sleep(0)
    return asked


async def until(is_so: Callable[[], bool]) -> None:
    """Return when it is so."""
    while True:
        if is_so():
            return
        await asyncio.sleep(0.02)


class Bench:
    """A broker and its meter."""

    def __init__(self, broker: Broker, meter: LoopMeter, members: int, groups: int) -> None:
        self.meter = meter
        self.members = members
        self.groups = groups
        self.coordinators = broker.node.work.coordinators
        self.broker = broker

    @property
    def coordinator(self) -> GroupCoordinator:
        """What is asked."""
        return self.coordinators.groups

    async def step(self, what: str, work: Callable[[], Awaitable[object]]) -> object:
        """Do one thing and print what it cost."""
        gc.collect()
        gc.disable()  # Its passes would count the bench's own objects.
        await asyncio.sleep(0)
        self.meter.reset()
        began, cpu = time.monotonic(), time.thread_time()
        result = await work()
        await asyncio.sleep(0.05)
        took, used = time.monotonic() - began, time.thread_time() - cpu
        longest = self.meter.longest_seconds * 1000
        mark = f"*  {self.meter.what[:110]}" if longest > 50 else ""
        print(f"{what:52} {longest:8.1f} ms {used:7.2f} s CPU {took:7.2f} s {mark}", flush=True)
        gc.enable()
        return result

    # Classic groups.

    def join(
        self, group: str, number: int, member_id: str = "", session_ms: int = 45_000
    ) -> Pending:
        """Ask for a place in a classic group."""
        return self.coordinator.join(
            group,
            lambda reply, new: events.Join(
                reply,
                member_id,
                f"member-{number:06}-{'0' * 30}",
                None,
                "client",
                "/127.0.0.1",
                session_ms,
                300_000,
                "consumer",
                PROTOCOLS,
                needs_known_member_id=False,
                can_skip_assignment=True,
                is_new_group=new,
            ),
        )

    async def classic(self) -> None:
        """Let a large classic group begin and end."""
        ids = await self.stable("classic")
        count = self.members

        async def leave() -> None:
            members = [events.LeavingMember(one, None) for one in ids]
            for begin in range(0, count, MEMBERS_AT_A_TIME):  # As the handler does.
                some = members[begin : begin + MEMBERS_AT_A_TIME]
                await all_of([self.coordinator.leave("classic", some)])
                await asyncio.sleep(0)

        await self.step(f"classic: {count} members leave at once", leave)

    async def migrate(self) -> None:
        """Let a large classic group become one of KIP-848, and one of classic members again."""
        await self.stable("moving")
        count = self.members

        async def up() -> list:
            return await all_of([self.beat(count, 0, {}, "moving")])

        await self.step(f"migration: a group of {count} becomes a KIP-848 one", up)

        async def down() -> list:
            return await all_of([self.beat(count, -1, None, "moving")])

        await self.step("migration: it becomes a classic one again", down)

    async def stable(self, group: str) -> list[str]:
        """Let a large classic group begin; return its members' ids."""
        count = self.members

        async def join() -> list:
            return await all_of(await send(count, lambda number: self.join(group, number)))

        def sync_of(ids: list[str], generation: int) -> Callable[[int], Pending]:
            given = dict.fromkeys(ids, bytes(30))

            def sync(number: int) -> Pending:
                assignments = given if number == 0 else {}
                return self.coordinator.sync(
                    group,
                    lambda reply: events.Sync(
                        reply, ids[number], None, generation, None, None, assignments
                    ),
                )

            return sync

        joined = await self.step(f"classic: {count} members join", join)
        leaders = [one for one in joined if one.members]
        ids = [one.member_id for one in leaders[0].members]

        async def sync() -> list:
            ask = sync_of(ids, joined[0].generation)
            return await all_of([*await send(count - 1, lambda n: ask(n + 1)), ask(0)])

        await self.step(f"classic: {count} members sync", sync)

        return ids

    async def sessions(self) -> None:
        """Let all sessions of a large group be over."""
        count = self.members

        async def join() -> list:
            return await all_of(await send(count, lambda n: self.join("short", n, session_ms=6000)))

        await self.step(f"sessions: {count} members join", join)
        shard = self.coordinator.runtime.shard_for("short")

        async def over() -> None:
            await until(lambda: not shard.machine.groups.known("short").members)

        await self.step(f"sessions: those of {count} members are over", over)

    # KIP-848 groups.

    def beat(self, number: int, epoch: int, owned: dict | None, group: str = "newer") -> Pending:
        """Send a heartbeat of the consumer protocol."""
        return self.coordinator.consumer_heartbeat(
            group,
            Heartbeat(
                f"member-{number:06}", epoch, None, None, 300_000, ["t"], None, None, owned, "c", ""
            ),
        )

    async def newer(self) -> None:
        """Let a large group of the consumer protocol begin."""
        count = self.members

        async def join() -> list:
            return await all_of(await send(count, lambda number: self.beat(number, 0, {})))

        joined = await self.step(f"KIP-848: {count} members join", join)

        async def one_more() -> list:
            return await all_of([self.beat(count, 0, {})])

        await self.step("KIP-848: one more", one_more)

        async def step() -> list:
            return await all_of(
                await send(count, lambda number: self.beat(number, joined[number].epoch, {}))
            )

        await self.step(f"KIP-848: {count} heartbeats", _quiet(step))

    # Offsets.

    async def load(self) -> None:
        """Write, load and forget many offsets of many groups."""
        topics = [TopicCommit("t", [(n, 5, -1, "") for n in range(100)], TopicId(b"t" * 16))]

        def commit(number: int) -> Pending:
            return self.coordinator.commit_offsets(
                CommitRequest(f"group-{number}", "", None, -1, -1, topics, True)
            )

        async def commits() -> list:
            return await all_of(await send(self.groups, commit))

        await self.step(f"{self.groups} groups commit 100 offsets each", commits)

        async def again() -> None:
            runtime = self.coordinator.runtime
            runtime.close()
            runtime.load_all()
            await until(lambda: all(one.state is not ShardState.LOADING for one in runtime.shards))

        await self.step("all of them are loaded", again)

        async def expire() -> None:
            for shard in self.coordinator.runtime.shards:
                shard.execute(shard.machine.expire, print, alone=True)
            await all_of([self.coordinator.delete_group("no such group")])

        await self.step("it is looked what has expired", _quiet(expire))

        async def delete() -> None:
            for shard in self.coordinator.runtime.shards:
                shard.machine.forget_topics({"t"})
            await until(
                lambda: (
                    not any(
                        self.coordinator.runtime.shard_for(group).machine.offsets.of_group(group)
                        for group in (f"group-{number}" for number in range(0, self.groups, 50))
                    )
                )
            )

        await self.step("the topic is deleted", delete)


def _quiet(work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        try:
            await work()
        except KafkaError:
            return

    return run


async def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--only", default="load,classic,newer,sessions,migrate")
    arguments = parser.parse_args()
    config = broker_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "message.max.bytes": str(100 << 20),
            "group.consumer.max.size": "1000000",
            "group.initial.rebalance.delay.ms": "1000",
        }
    )
    meter = LoopMeter()
    with meter.measuring():
        broker = Broker(config, memory=True)
        await broker.start()
        bootstrap = f"{broker.address[0]}:{broker.address[1]}"

        def make() -> None:
            wire = WireClient(bootstrap, timeout_seconds=60)
            topic = {"name": "t", "num_partitions": 1000, "replication_factor": 1}
            wire.call("create_topics", 7, topics=[topic], timeout=60_000)
            found = wire.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
            assert found["coordinators"][0]["error_code"] in (0, 15), found
            wire.close()

        await asyncio.to_thread(make)
        await asyncio.sleep(1)
        bench = Bench(broker, meter, arguments.members, arguments.groups)
        for name in arguments.only.split(","):
            await getattr(bench, name)()
        await broker.stop()


if __name__ == "__main__":
    asyncio.run(main())
