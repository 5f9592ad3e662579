"""An application reads, transforms and writes in transactions while it and the broker are killed
every few seconds: is the result exact?

    python tests/campaigns/exactly_once.py [--client confluent|java|ottla|ottla-async]
        [--protocol classic|consumer] [--records 1000000] [--batch 500] [--session 4] [--seed 1]
        [--broker-kill 3,9] [--application-kill 2,7] [--target ottla|kafka]

Two processes of the application share a consumer group. They are killed with SIGKILL, stopped for
longer than their session, or replaced while they are stopped (a zombie comes back); the broker is
killed with SIGKILL and started again on its port. (It has to live for longer than a session mostly:
a start gives new ones to the group's members, also to those who are no more.) Every 45 s the
application is left alone for 45 s: a process that says nothing for 30 s has stalled, is looked at
and killed.

Some transactions are aborted on purpose, in the input (by its source) and in the results; their
records carry a mark. A reader of committed results follows all the time, another reads everything
again after one more restart. Promised: no mark is ever read; every input is there exactly once in
both result topics, transformed, in its partition's order; every transaction is whole (see
transforming/records.py); last stable offsets never fall; the committed offsets are the input's end;
no transaction stays open. Prints a JSON report; exit code 1 when a promise was broken.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from confluent_kafka import Producer

from tests.campaigns.transforming import records
from tests.campaigns.transforming.hanging import (
    IDLE_STATES,
    Open,
    hanging_in,
    is_committed,
    write_marker,
)
from tests.campaigns.transforming.ledger import Ledger
from tests.campaigns.transforming.processes import PROGRAMS, Slot, command_of, end
from tests.campaigns.transforming.watch import Follower, OffsetWatch, read_all, stable_offsets
from tools.kafka_peer import KafkaPeer
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer
from tools.wire_client import Closed, WireClient

GROUP = "transforming"
SOURCE_BATCH = 20_000
STALL_SECONDS = 30
ROUGH_SECONDS, CALM_SECONDS = 45, 45
SETTLE_SECONDS = 60
LOADING_SECONDS = 30
"""Longer than the timeout of a transaction, too: by then its coordinator has ended it."""
OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 500,
    "log.segment.bytes": 4 << 20,
    "log.cleaner.backoff.ms": 1000,
}
INTERNAL = ("__consumer_offsets", "__transaction_state")
EVERYWHERE = {**{name: range(count) for name, count in records.PARTITIONS.items()}}
EVERYWHERE[INTERNAL[0]] = range(50)
COMPACTED_SOON = {"segment.ms": "3000", "min.cleanable.dirty.ratio": "0.01"}
"""So that the coordinators' topics roll and are compacted while all this goes on."""


class Campaign:
    """One run."""

    def __init__(self, options: argparse.Namespace, root: Path) -> None:
        self.options = options
        self.root = root
        self.peer = self.make_peer()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.stalls: list[str] = []
        self.hanging: list[Open] = []
        """Use: what a stall has shown to be open for ever; the rest of the run is pointless."""
        self.slots: list[Slot] = []
        self.ends: dict[int, int] = {}
        """Behind the last number of each input partition."""
        self.is_over = threading.Event()
        self.began = time.monotonic()
        self.seconds = 0.0
        self.slowest_start_seconds = 0.0

    def make_peer(self) -> Peer:
        """Return the broker, which is started later."""
        options = self.options
        session = {"group.consumer.session.timeout.ms": options.session * 1000}
        if options.target == "ottla":
            return OttlaPeer(self.root / "data", OPTIONS | session)
        session["group.consumer.min.session.timeout.ms"] = 1000
        session["group.consumer.min.heartbeat.interval.ms"] = 500
        loggers = dict(options.broker_log)
        return KafkaPeer(self.root / "data", OPTIONS | session, loggers=loggers)

    def make_topics(self) -> None:
        with WireClient(self.peer.bootstrap) as wire:
            for topic, count in records.PARTITIONS.items():
                wire.create_topic(topic, count)

    def make_watch(self) -> OffsetWatch:
        return OffsetWatch(lambda: self.peer.bootstrap, self.ledger)

    def run(self) -> None:
        """Fill, transform under fire, settle, judge."""
        self.peer.start()
        if isinstance(self.peer, OttlaPeer):
            self.peer._asked_port = self.peer.port  # Its clients know no other.
        self.make_topics()
        self.make_input()
        self.compact_soon()
        command = command_of(self.options.client, self.root)
        for number in range(self.options.instances):
            name = f"slot-{number}"
            limits = [str(self.options.batch), str(self.options.abort_every)]
            session = str(self.options.session)
            arguments = [self.peer.bootstrap, name, *limits, self.options.protocol, session]
            self.slots.append(Slot(name, [*command, *arguments], self.root))
        self.ledger = Ledger("follower", self.options.records)
        follower = Follower(self.peer.bootstrap, self.ledger)
        watch = self.make_watch()
        chaos = [
            threading.Thread(target=self.guard, args=(each,))
            for each in (self.kill_brokers, self.kill_applications)
        ]
        self.began = time.monotonic()
        for slot in self.slots:
            slot.start()
        for thread in (follower, watch, *chaos):
            thread.start()
        self.wait()
        self.seconds = time.monotonic() - self.began
        self.is_over.set()
        for thread in chaos:
            thread.join()
        self.settle()
        for thread in (follower, watch):
            thread.is_over.set()
            thread.join()
        self.problems += watch.problems[:10]
        self.counts["last stable offsets asked"] = watch.asked
        self.judge()

    def make_input(self) -> None:
        """Write every number in transactions, and aborted records between them."""
        source = Producer(
            {
                "bootstrap.servers": self.peer.bootstrap,
                "transactional.id": "source",
                "queue.buffering.max.messages": 2 * SOURCE_BATCH,
            }
        )
        source.init_transactions(30)
        count = self.options.records

        def delivered(error: object, message: object) -> None:
            assert error is None, error
            self.ends[message.partition()] = message.offset() + 1

        for base in range(0, count, SOURCE_BATCH):
            source.begin_transaction()
            for number in range(base, min(base + SOURCE_BATCH, count)):
                told = {"on_delivery": delivered} if number >= count - 8 else {}
                value = records.make_input(number)
                source.produce(records.IN, value, partition=number % 8, **told)
            source.commit_transaction(60)
            source.begin_transaction()
            for number in range(80):
                source.produce(records.IN, records.MARK, partition=number % 8)
            source.flush(30)
            source.abort_transaction(30)

    def compact_soon(self) -> None:
        """Have the internal topics made, and configure them."""
        with WireClient(self.peer.bootstrap) as wire:
            while True:
                found = wire.call("find_coordinator", 4, key_type=0, coordinator_keys=[GROUP])
                if found["coordinators"][0]["error_code"] == 0:
                    break
                time.sleep(0.1)
            configs = [
                {"name": name, "config_operation": 0, "value": value}
                for name, value in COMPACTED_SOON.items()
            ]
            asked = [
                {"resource_type": 2, "resource_name": topic, "configs": configs}
                for topic in INTERNAL
            ]
            answer = wire.call("incremental_alter_configs", 1, resources=asked, validate_only=False)
            assert not any(one["error_code"] for one in answer["responses"]), answer

    # What goes wrong.

    def guard(self, chaos: object) -> None:
        try:
            chaos()
        except BaseException as error:
            self.problems.append(f"{chaos.__name__} ended: {error!r}")
            raise

    def kill_brokers(self) -> None:
        chooser = random.Random(f"{self.options.seed} brokers")
        while not self.is_over.wait(chooser.uniform(*self.options.broker_kill)):
            self.peer.kill9()
            self.peer.start()
            self.counts["broker kills"] += 1
            self.slowest_start_seconds = max(
                self.slowest_start_seconds, self.peer.started_in_seconds
            )

    def kill_applications(self) -> None:
        chooser = random.Random(f"{self.options.seed} applications")
        while not self.is_over.wait(chooser.uniform(*self.options.application_kill)):
            self.look_for_stalls()
            if self.is_calm():
                continue
            slot = chooser.choice(self.slots)
            chance = chooser.random()
            if chance < 0.6:
                slot.kill()
                self.counts["application kills"] += 1
                self.is_over.wait(chooser.uniform(0, 1))
            elif chance < 0.8:
                slot.signal(signal.SIGSTOP)
                self.is_over.wait(self.options.session + 2)
                slot.signal(signal.SIGCONT)
                self.counts["pauses"] += 1
                continue
            else:
                self.replace(slot)
                continue
            slot.start()

    def replace(self, slot: Slot) -> None:
        """Start another process of the slot, and let the one before come back beside it."""
        zombie = slot.process
        slot.signal(signal.SIGSTOP)
        slot.start()
        self.is_over.wait(3)
        zombie.send_signal(signal.SIGCONT)
        self.is_over.wait(2)
        end(zombie)
        self.counts["zombies"] += 1

    def is_calm(self) -> bool:
        """Tell whether the application is to be left alone now."""
        return (time.monotonic() - self.began) % (ROUGH_SECONDS + CALM_SECONDS) > ROUGH_SECONDS

    def look_for_stalls(self) -> None:
        for slot in self.slots:
            if slot.silent_seconds() > STALL_SECONDS:
                slot.explain()
                log = f"{slot.name} after {time.monotonic() - self.began:.0f} s"
                self.stalls.append(log)
                print("stalled:", log, "broker:", self.state(), file=sys.stderr, flush=True)
                self.look_for_hanging()
                slot.kill()
                slot.start()

    def look_for_hanging(self) -> None:
        """Look twice: a coordinator that is loading still knows of nothing."""
        try:
            found: set[Open] = set()
            for number in range(2):
                those = self.hanging_now()
                found = found & those if number else those
                if found and not number:
                    time.sleep(LOADING_SECONDS)
        except (Closed, OSError) as error:
            print("not looked at:", repr(error), file=sys.stderr, flush=True)
            return
        if self.options.target == "kafka":
            self.end_hanging(sorted(found))
        else:
            self.hanging = sorted(found)

    def hanging_now(self) -> set[Open]:
        """Return what is open and no coordinator knows of. Raises Closed, OSError."""
        with WireClient(self.peer.bootstrap) as wire:
            return set(hanging_in(wire, EVERYWHERE))

    def end_hanging(self, found: list[Open]) -> None:
        """Do what an operator of Kafka has to: its coordinator has skipped markers, not a client.

        The marker is the one that the transaction's other partitions have. What is then missing or
        doubled is somebody's fault all the same.
        """
        for one in found:
            commit = is_committed(one, self.root / "data")
            try:
                with WireClient(self.peer.bootstrap) as wire:
                    code = write_marker(wire, one, commit=commit)
            except (Closed, OSError) as error:
                print("not ended:", repr(error), file=sys.stderr, flush=True)
                continue
            said = f"{one}, by a marker to {'commit' if commit else 'abort'}: {code}"
            print("ended by hand:", said, file=sys.stderr, flush=True)
            self.counts["markers that Kafka skipped"] += not code

    def wait(self) -> None:
        """Until all is seen in the results, time is over, or nothing can come any more."""
        deadline = self.began + self.options.seconds_max
        told = moved = self.began
        whole = 0
        while self.ledger.whole < self.options.records and time.monotonic() < deadline:
            if self.ledger.whole > whole:
                whole, moved = self.ledger.whole, time.monotonic()
            elif time.monotonic() - moved > STALL_SECONDS:  # Who waits may say so all the time.
                self.look_for_hanging()
                moved = time.monotonic()
            if self.hanging:
                self.problems.append(f"open, and no coordinator knows: {self.hanging}")
                return
            time.sleep(0.2)
            if time.monotonic() - told > 30:
                told = time.monotonic()
                steps = {slot.name: dict(slot.steps) for slot in self.slots}
                line = f"{told - self.began:.0f} s: {self.ledger.whole}, {self.counts}, {steps}"
                print(line, file=sys.stderr, flush=True)

    # The end.

    def settle(self) -> None:
        """Let the application come to rest, end it, and wait until nothing is open."""
        time.sleep(3)
        for slot in self.slots:
            slot.kill()
        if (found := self.settled()) and self.options.target == "kafka":
            self.look_for_hanging()
            found = self.settled()
        if found:
            self.problems.append(f"still open: {found}")
        self.start_again()
        time.sleep(1)  # For the follower to see that nothing has changed.

    def start_again(self) -> None:
        self.peer.kill9()
        self.peer.start()

    def settled(self) -> list[str]:
        """Wait until nothing is open; return what is after a minute."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while (found := self.open_ones()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return found

    def state(self) -> object:
        try:
            return self.open_ones()
        except (Closed, OSError) as error:
            return repr(error)

    def open_ones(self) -> list[str]:
        """Return what is not decided: transactions, partitions, inputs without an offset."""
        with WireClient(self.peer.bootstrap) as wire:
            answer = wire.call("list_transactions", 1, duration_filter=-1)
            if answer["error_code"]:
                return [f"error {answer['error_code']}"]
            found = [
                f"{one['transactional_id']} {one['transaction_state']}"
                for one in answer["transaction_states"]
                if one["transaction_state"] not in IDLE_STATES
            ]
            ends = stable_offsets(wire, isolation=0)
            stable = stable_offsets(wire)
            found += [
                f"{where} {stable.get(where)} of {end}"
                for where, end in ends.items()
                if stable.get(where) != end
            ]
            asked = [{"group_id": GROUP, "topics": None}]
            answer = wire.call("offset_fetch", 8, groups=asked, require_stable=True)
            parts = {
                part["partition_index"]: part["committed_offset"]
                for topic in answer["groups"][0]["topics"]
                for part in topic["partitions"]
            }
            lasts = dict(zip(range(8), wire.list_offsets(records.IN, range(8)), strict=True))
        for index, end_offset in self.ends.items():
            if not end_offset <= parts.get(index, -1) <= lasts[index][1]:
                found.append(f"in-{index} committed {parts.get(index)}, ends at {end_offset}")
        return found

    def judge(self) -> None:
        """Judge what the follower saw, and what is there to be read now."""
        again = Ledger("reader", self.options.records)
        read_all(self.peer.bootstrap, again, 300)
        for ledger in (self.ledger, again):
            ledger.judge()
            self.problems += ledger.problems
        if again.transactions.keys() != self.ledger.transactions.keys():
            self.problems.append("the reader found other transactions than the follower")
        for slot in self.slots:
            self.problems += slot.faults

    def report(self) -> dict[str, object]:
        steps: Counter[str] = Counter()
        for slot in self.slots:
            steps.update(slot.steps)
        return {
            "client": self.options.client,
            "protocol": self.options.protocol,
            "seed": self.options.seed,
            "records": self.options.records,
            "seconds": round(self.seconds, 1),
            "slowest_start_seconds": round(self.slowest_start_seconds, 2),
            **self.counts,
            "steps": dict(steps),
            "transactions": len(self.ledger.transactions),
            "results_read": self.ledger.records,
            "stalls": self.stalls,
            "problems": self.problems[:30],
        }


def span(text: str) -> tuple[float, float]:
    """Return both ends of ``least,most``."""
    least, most = map(float, text.split(","))
    return least, most


def parser_of(text: str) -> argparse.ArgumentParser:
    """Return the options of such a campaign, whose module's docstring is ``text``."""
    parser = argparse.ArgumentParser(description=text.split("\n\n", 1)[0])
    parser.add_argument("--client", choices=[*PROGRAMS, "java"], default="confluent")
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--abort-every", type=int, default=7)
    parser.add_argument("--broker-kill", type=span, default=(3.0, 9.0))
    parser.add_argument("--application-kill", type=span, default=(2.0, 7.0))
    parser.add_argument("--session", type=int, default=4, help="of a member, in seconds")
    parser.add_argument("--seconds-max", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="keep logs and data here")
    return parser


def run(campaign: type[Campaign], options: argparse.Namespace) -> int:
    """Run a campaign and print its report; return the exit code."""
    root = options.directory or Path(tempfile.mkdtemp(prefix="exactly-once-"))
    root.mkdir(parents=True, exist_ok=True)
    one = campaign(options, root)
    try:
        one.run()
    finally:
        for slot in one.slots:
            slot.kill()
        one.peer.kill9()
    report = one.report()
    if options.directory is None and not report["problems"] and not report["stalls"]:
        shutil.rmtree(root, ignore_errors=True)
    else:
        report["directory"] = str(root)
    print(json.dumps(report, indent=2))
    return 1 if report["problems"] else 0


def main() -> int:
    """Run the command line of the module's docstring."""
    parser = parser_of(__doc__ or "")
    parser.add_argument("--target", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument(
        "--broker-log",
        type=lambda text: text.partition("=")[::2],
        action="append",
        default=[],
        metavar="LOGGER=LEVEL",
        help="have Kafka print more, such as kafka.request.logger=debug",
    )
    return run(Campaign, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
