"""Several hosts on one etcd, each a process of its own on this machine."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from ottla.log.files.layout import LINEAGE
from ottla.metadata.keys import KeyKind, Keys
from ottla.metadata.store import Put
from ottla.metadata.values import decode_partition, decode_stamps
from tests.etcd_server import Etcd, free_ports, open_store
from tools.ottla_peer import OttlaPeer
from tools.peer import PeerFailed

CLUSTER = "test"
SESSION_MS = 2_000
PATIENCE_SECONDS = 60
OPTIONS = {
    "broker.session.timeout.ms": SESSION_MS,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "ottla.stop.timeout.ms": 500,
}


class Hosts:
    """An etcd and nodes 1, 2, ...; a node keeps its ports and its data over restarts."""

    def __init__(self, directory, count=3, **options):
        self.directory = directory
        self.etcd = Etcd(directory / "etcd")
        ports = free_ports(2 * count)
        further = {name.replace("_", "."): value for name, value in options.items()}
        self.nodes = {
            node: self.peer(node, ports[2 * node - 2 : 2 * node], **further)
            for node in range(1, count + 1)
        }
        self._paused = set()

    def peer(self, node, ports, data=None, cluster=CLUSTER, **further):
        """Return a node that is not started."""
        own = {"ottla.inter.broker.port": ports[1], "node.id": node}
        options = {**OPTIONS, **own, **further}
        return Host(self, data or f"node-{node}", options, ports[0], cluster)

    def __enter__(self):
        self.etcd.start()
        try:
            with ThreadPoolExecutor() as side_by_side:
                list(side_by_side.map(start_at_free_ports, self.nodes.values()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with ExitStack() as stack:
            stack.callback(self.etcd.kill)
            for node, peer in self.nodes.items():
                stack.callback(peer.kill9)
                if node in self._paused:
                    self.resume(node)

    @property
    def bootstrap(self):
        return ",".join(peer.bootstrap for peer in self.nodes.values())

    def kill(self, node):
        self.nodes[node].kill9()

    def pause(self, node):
        os.kill(self.nodes[node].pid, signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node):
        os.kill(self.nodes[node].pid, signal.SIGCONT)
        self._paused.discard(node)

    def in_store(self, work):
        """Return what ``work(store, keys)`` returns, on a store of this process."""

        async def run():
            store = open_store(self.etcd)
            try:
                return await work(store, Keys(CLUSTER))
            finally:
                await store.close()

        return asyncio.run(run())

    def states(self):
        """Return the state of each partition, by its key."""

        async def work(store, keys):
            entries, _ = await store.scan(keys.partitions)
            return {each.key: decode_partition(each.value) for each in entries}

        return self.in_store(work)

    def state(self, topic, partition=0):
        async def work(store, keys):
            entries, _ = await store.scan(keys.prefix)
            ids = [
                keys.place(each.key).topic_id
                for each in entries
                if keys.place(each.key).kind is KeyKind.TOPIC_ID and topic.encode() in each.value
            ]
            key = keys.partition(ids[0], partition)
            return next(decode_partition(each.value) for each in entries if each.key == key)

        return self.in_store(work)

    def members(self):
        async def work(store, keys):
            entries, _ = await store.scan(keys.live_brokers)
            return {keys.place(each.key).number for each in entries}

        return self.in_store(work)

    def revision(self):
        async def work(store, keys):
            return (await store.scan(keys.meta))[1]

        return self.in_store(work)

    def put(self, name, count=100):
        """Write a key that no cluster knows, often."""

        async def work(store, _):
            for _ in range(count):
                await store.commit([], [Put(f"/others/{name}", b"")])

        return self.in_store(work)

    def is_stamped(self):
        """Tell whether each node has stamped what was decided of partitions until now."""

        async def work(store, keys):
            entries, _ = await store.scan(keys.prefix)
            decided = [each.mod_rev for each in entries if each.key.startswith(keys.partitions)]
            by_key = {each.key: each for each in entries}
            for node in self.nodes:
                stamps = by_key.get(keys.stamps(node))
                if stamps is None or stamps.mod_rev < max(decided):
                    return False
                path = self.directory / f"node-{node}" / LINEAGE
                if decode_stamps(stamps.value)[0].token not in path.read_text():
                    return False
            return True

        return self.in_store(work)

    def until(self, is_so, what=lambda: "it never came"):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, what()
            time.sleep(0.05)

    def wait_for_isr(self, topic, count=3, partition=0):
        self.until(
            lambda: len(self.state(topic, partition).isr) == count,
            lambda: self.state(topic, partition),
        )


class Host(OttlaPeer):
    """One node."""

    def __init__(self, hosts, data, options, port, cluster):
        super().__init__(hosts.directory / data, options, port=port)
        self._hosts = hosts
        self._cluster = cluster

    def command(self):
        self.options["ottla.cluster"] = self._hosts.etcd.address(self._cluster)
        return super().command()


def start_at_free_ports(peer):
    """Start a node of several hosts, at other ports if somebody has taken one of its since."""
    for _ in range(5):
        try:
            return peer.start()
        except PeerFailed as error:
            if "is in use" not in str(error):
                raise
        peer._asked_port, peer.options["ottla.inter.broker.port"] = free_ports(2)
    return peer.start()
