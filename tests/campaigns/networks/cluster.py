"""Hosts of one cluster, each a machine of a network with a file system of its own, and their etcd.

Owns the processes, and what it is to lose power: a host's cable, its file system and its process go
at one moment, and what comes back is a kernel that knows of no connection.
"""

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.campaigns.networks.network import Network
from tests.campaigns.powercuts.volume import Volume, cut_power
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer, PeerFailed, cpu_seconds

PORT = 9092
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
CLIENTS = "clients"
START_SECONDS = 60.0
OPTIONS = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "auto.leader.rebalance.enable": "false",
    "ottla.stop.timeout.ms": 500,
}


class Host(OttlaPeer):
    """The node of one machine."""

    def __init__(
        self, network: Network, node: int, directory: Path, etcd: str, options: Mapping[str, object]
    ) -> None:
        own = {"node.id": node, "ottla.cluster": etcd}
        super().__init__(
            directory / f"host-{node}" / "volume" / "data", {**OPTIONS, **options, **own}
        )
        self.machine = f"host{node}"
        self._network = network
        self.host = network.address(self.machine)
        self.port = self._asked_port = PORT
        self.log_path = directory / f"host-{node}.out"

    def command(self) -> Sequence[str]:
        """Return the command line that serves on the machine."""
        prefix = self._network.machine(self.machine).prefix()
        return [*prefix, *super().command(), "--listen", self.host]

    def read_line(self, line: str) -> bool:
        """Tell whether it is the ready line."""
        return f"{self.host}:{PORT}" in line

    def send(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        assert self.process is not None, "it is started"
        self.process.send_signal(number)


class EtcdMember:
    """One etcd on a machine of its own."""

    def __init__(self, network: Network, machine: str, directory: Path, members: Sequence[str]):
        self.machine = machine
        self._network = network
        self._data = directory / machine
        self._log_path = directory / f"{machine}.out"
        self._members = members
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it may have to wait for the others."""
        client = f"http://{self._network.address(self.machine)}:{ETCD_PORT}"
        peer = f"http://{self._network.address(self.machine)}:{ETCD_PEER_PORT}"
        peers = ",".join(
            f"{name}=http://{self._network.address(name)}:{ETCD_PEER_PORT}"
            for name in self._members
        )
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._network.machine(self.machine).prefix(),
                    "etcd",
                    f"--name={self.machine}",
                    f"--data-dir={self._data}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster={peers}",
                    "--heartbeat-interval=50",
                    "--election-timeout=500",
                    "--logger=zap",
                    "--log-level=warn",
                ],
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """End it at once. Harmless when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def cpu_seconds(self) -> float:
        """Return user and system time of the process that runs; 0 when none does."""
        return 0.0 if self._process is None else cpu_seconds(self._process.pid)


class Cluster:
    """All of it; a context manager. Who enters it is on a client's machine from then on."""

    def __init__(
        self,
        directory: Path,
        *,
        session_ms: int,
        hosts: int = 3,
        members: int = 1,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """``members``: of etcd; ``options``: of the nodes, besides OPTIONS."""
        machines = [f"host{node}" for node in range(1, hosts + 1)]
        self.etcd_machines = [f"etcd{number}" for number in range(1, members + 1)]
        self.network = Network([*machines, *self.etcd_machines, CLIENTS])
        self._stack = ExitStack()
        self.directory = directory
        self._options = {"broker.session.timeout.ms": session_ms, **(options or {})}
        self.hosts: dict[int, Host] = {}
        self.volumes: dict[int, Volume] = {}
        self.members: list[EtcdMember] = []
        self._count = hosts

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            self.network.machine(CLIENTS).enter()
            self.members = [
                EtcdMember(self.network, machine, self.directory, self.etcd_machines)
                for machine in self.etcd_machines
            ]
            for member in self.members:
                stack.callback(member.kill)
                member.start()
            endpoints = ",".join(
                f"{self.network.address(machine)}:{ETCD_PORT}" for machine in self.etcd_machines
            )
            for node in range(1, self._count + 1):
                place = self.directory / f"host-{node}"
                place.mkdir()
                volume = Volume(place, size_mib=768)
                self.volumes[node] = stack.enter_context(volume)
                host = Host(
                    self.network, node, self.directory, f"etcd://{endpoints}/test", self._options
                )
                self.hosts[node] = host
                stack.callback(self._end, host)
            deadline = time.monotonic() + START_SECONDS
            for host in self.hosts.values():
                _start(host, deadline)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    def _end(host: Host) -> None:
        if host.process is not None:
            host.send(signal.SIGCONT)
        host.kill9()

    @property
    def bootstraps(self) -> Mapping[int, str]:
        """The address of each node."""
        return {node: host.bootstrap for node, host in self.hosts.items()}

    def ways(self, senders: Sequence[str], receivers: Sequence[str]) -> list[tuple[str, str]]:
        """Return the ways from all of the one to all of the other."""
        return [(one, other) for one in senders for other in receivers if one != other]

    def lose_power(self, node: int, flag: int) -> None:
        """Take cable, disk and process away."""
        host = self.hosts[node]
        self.network.unplug(host.machine)
        cut_power(str(self.volumes[node].path), flag, host.pid)
        host.kill9()

    def power_on(self, node: int) -> None:
        """Start the machine; its node starts with it."""
        self.volumes[node].power_on_again()
        self.network.plug_in(self.hosts[node].machine)
        self.start(node)

    def start(self, node: int) -> None:
        """Start a node, and wait until it serves."""
        _start(self.hosts[node], time.monotonic() + START_SECONDS)


def _start(host: Peer, deadline: float) -> None:
    """Start a node as a service manager does: again if it ends because etcd is not there yet."""
    while True:
        try:
            host.start()
        except PeerFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
