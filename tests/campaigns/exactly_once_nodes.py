"""As exactly_once.py, on several nodes: one of them is killed every few seconds, and leaders move.

    python tests/campaigns/exactly_once_nodes.py [--nodes 3] [--replication 3] [--records 100000]
        [--client confluent|java|ottla|ottla-async] [--protocol classic|consumer] [--seed 1]
        [--node-pauses 0.0]

Topics, groups and transactions have as many replicas as ``--replication`` says. ``--node-pauses``
is the share of kills that only stop a node for a while. All that is promised there is promised
here, whichever node is asked.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from confluent_kafka.admin import AdminClient, NewTopic

from tests.campaigns.exactly_once import EVERYWHERE, GROUP, OPTIONS, Campaign, parser_of, run
from tests.campaigns.transforming import records
from tests.campaigns.transforming.hanging import IDLE_STATES, Open, hanging_in
from tests.campaigns.transforming.watch import OffsetWatch, stable_offsets
from tools.nodes_peer import NodesPeer
from tools.wire_client import Closed, WireClient

CALL_SECONDS = 30
NODE_PAUSE_SECONDS = 15
"""Some are longer than a node's registration lasts without a sign of life, some shorter."""
GIVEN = ("offsets.topic", "transaction.state.log")
Answer = dict[str, Any]


class Everybody:
    """Asks all nodes and puts together what those say who lead."""

    def __init__(self, wires: list[WireClient]) -> None:
        self.wires = wires

    def call(self, api: str, version: int, /, **fields: Any) -> Answer:
        """Return the answers of all nodes as one: parts without an error, and all transactions."""
        answers = [wire.call(api, version, **fields) for wire in self.wires]
        whole: Answer = {"topics": [], "transaction_states": [], "error_code": 0}
        for answer in answers:
            whole["topics"] += [
                topic
                | {"partitions": [one for one in topic["partitions"] if not one["error_code"]]}
                for topic in answer.get("topics", ())
            ]
            whole["transaction_states"] += answer.get("transaction_states", ())
            whole["error_code"] = whole["error_code"] or answer.get("error_code", 0)
        return whole

    def committed(self) -> dict[int, int]:
        """Return the committed offset of each input, from whoever coordinates the group."""
        asked = [{"group_id": GROUP, "topics": None}]
        for wire in self.wires:
            (group,) = wire.call("offset_fetch", 8, groups=asked, require_stable=True)["groups"]
            if not group["error_code"]:
                return {
                    part["partition_index"]: part["committed_offset"]
                    for topic in group["topics"]
                    for part in topic["partitions"]
                }
        return {}


@contextmanager
def everybody(bootstrap: str) -> Iterator[Everybody]:
    """Connect to all nodes that live. Raises Closed or OSError."""
    with WireClient(bootstrap) as wire:
        brokers = wire.call("metadata", 9, topics=[])["brokers"]
    with ExitStack() as stack:
        places = [f"{one['host']}:{one['port']}" for one in brokers]
        yield Everybody([stack.enter_context(WireClient(place)) for place in places])


class NodesWatch(OffsetWatch):
    """Asks one node after the other: who was replaced must not tell an older offset."""

    def run(self) -> None:
        while not self.is_over.wait(0.2):
            try:
                with everybody(self.bootstrap()) as nodes:
                    while not self.is_over.wait(0.05):
                        for wire in nodes.wires:
                            self.ask(wire)
            except (Closed, OSError):
                continue


class NodesCampaign(Campaign):
    """One run on several nodes."""

    def make_peer(self) -> NodesPeer:
        replication = self.options.replication
        session = {"group.consumer.session.timeout.ms": self.options.session * 1000}
        factors = {f"{topic}.replication.factor": replication for topic in GIVEN}
        return NodesPeer(self.root / "data", self.options.nodes, OPTIONS | session | factors)

    def make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.peer.bootstrap, "log_level": 0})
        made = admin.create_topics(
            [
                NewTopic(topic, count, self.options.replication)
                for topic, count in records.PARTITIONS.items()
            ]
        )
        for one in made.values():
            one.result(CALL_SECONDS)

    def make_watch(self) -> OffsetWatch:
        return NodesWatch(lambda: self.peer.bootstrap, self.ledger)

    def kill_brokers(self) -> None:
        chooser = random.Random(f"{self.options.seed} brokers")
        while not self.is_over.wait(chooser.uniform(*self.options.broker_kill)):
            running = [node for node, pid in self.peer.workers().items() if pid]
            if running and chooser.random() < self.options.node_pauses:
                self.peer.pause_worker(
                    chooser.choice(running), chooser.uniform(1, NODE_PAUSE_SECONDS)
                )
                self.counts["broker pauses"] += 1
            elif running:
                self.peer.kill_worker(chooser.choice(running))
                self.counts["broker kills"] += 1

    def hanging_now(self) -> set[Open]:
        with everybody(self.peer.bootstrap) as nodes:
            return set(hanging_in(nodes, EVERYWHERE))

    def open_ones(self) -> list[str]:
        """Return what is not decided, or why that cannot be told: a node is stopped, or begins."""
        try:
            return self.undecided()
        except (Closed, OSError) as error:
            return [repr(error)]

    def undecided(self) -> list[str]:
        """Return transactions, partitions, and inputs without an offset."""
        with everybody(self.peer.bootstrap) as nodes:
            listed = nodes.call("list_transactions", 1, duration_filter=-1)
            found = [f"error {listed['error_code']}"] if listed["error_code"] else []
            found += [
                f"{one['transactional_id']} {one['transaction_state']}"
                for one in listed["transaction_states"]
                if one["transaction_state"] not in IDLE_STATES
            ]
            ends = stable_offsets(nodes, isolation=0)
            stable = stable_offsets(nodes)
            found += [
                f"{where} {stable.get(where)} of {end}"
                for where, end in ends.items()
                if stable.get(where) != end
            ]
            parts = nodes.committed()
        for index, end_offset in self.ends.items():
            if not end_offset <= parts.get(index, -1):
                found.append(f"in-{index} committed {parts.get(index)}, ends at {end_offset}")
        return found

    def start_again(self) -> None:
        """All nodes together have another address after another start: nobody would find them."""


def main() -> int:
    """Run the command line of the module's docstring."""
    parser = parser_of(__doc__ or "")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--replication", type=int, default=3)
    parser.add_argument("--node-pauses", type=float, default=0.0)
    parser.set_defaults(target="ottla", records=100_000)
    return run(NodesCampaign, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
