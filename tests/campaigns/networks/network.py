"""Machines on one switch, as network namespaces of this kernel: cut, slowed, unplugged.

Owns a bridge in a namespace of its own, and for each machine a namespace with an ``eth0`` on it.
Every machine knows the hardware addresses of all others by heart, so a packet's way from one to
another is cut by giving the sender a wrong one: the packet is lost without a word to anybody, and
the other direction stays as it was. A namespace lives as long as the process that holds it, which
ends with us at the latest: nothing is left behind, whatever ends the campaign. Needs Linux, root,
ip and nsenter; ``Impossible`` says what is missing. Knows nothing of nodes.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Self

CLONE_NEWNET = 0x40000000
SLOW = (
    ("netem", "delay", "40ms", "20ms", "loss", "2%"),
    ("tbf", "rate", "400kbit", "burst", "3000", "latency", "150ms"),
)
"""Late and lossy; a kernel without netem has narrow links, whose queues are long and run over."""


class Impossible(Exception):
    """This machine does not let us make networks."""


class Namespace:
    """A network namespace without a name."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat >/dev/null"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None, "it is a pipe"
        if not self._holder.stdout.readline():
            _, why = self._holder.communicate()
            raise Impossible(f"unshare --net: {why.decode().strip()}")

    @property
    def pid(self) -> int:
        """The number of a process that lives in it."""
        return self._holder.pid

    @property
    def path(self) -> str:
        """The file that stands for it."""
        return f"/proc/{self.pid}/ns/net"

    def prefix(self) -> list[str]:
        """Return what to put before a command that is to run in it."""
        return ["nsenter", f"--net={self.path}"]

    def ip(self, *lines: str) -> None:
        """Run lines of ``ip`` in it. Raises Impossible."""
        _run([*self.prefix(), "ip", "-batch", "-"], "\n".join(lines) + "\n")

    def enter(self) -> None:
        """Let this thread, and all that it starts from now on, live in it."""
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            if libc.setns(descriptor, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let it end when no process lives in it any more."""
        self._holder.kill()
        self._holder.communicate()


class Network:
    """A switch and the machines that are plugged in; a context manager."""

    def __init__(self, names: Iterable[str], net: str = "10.77.0") -> None:
        """``names``: of the machines; ``net``: the first three numbers of all addresses."""
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._net = net
        self._machines: dict[str, Namespace] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._switch: Namespace | None = None

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise Impossible("network namespaces need root")
        for command in ("ip", "unshare", "nsenter", "tc"):
            if shutil.which(command) is None:
                raise Impossible(f"there is no {command} here")
        try:
            self._switch = Namespace()
            self._switch.ip(
                "link set lo up",
                "link add switch type bridge forward_delay 0",
                "link set switch up",
            )
            for name in self._numbers:
                self.plug_in(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for machine in (*self._machines.values(), self._switch):
            if machine is not None:
                machine.close()
        self._machines.clear()
        self._switch = None

    def address(self, name: str) -> str:
        """Return the address of a machine."""
        return f"{self._net}.{self._numbers[name]}"

    def machine(self, name: str) -> Namespace:
        """Return the namespace of a machine that is plugged in."""
        return self._machines[name]

    def plug_in(self, name: str) -> None:
        """Give a machine a new namespace, whose kernel knows nothing of earlier connections."""
        assert self._switch is not None, "the network is entered"
        number, machine = self._numbers[name], Namespace()
        self._machines[name] = machine
        port = f"port{number}"
        self._switch.ip(
            f"link add {port} type veth peer name eth0 address {_mac(number)} netns {machine.pid}",
            f"link set {port} master switch up",
        )
        machine.ip(
            "link set lo up",
            f"address add {self.address(name)}/24 dev eth0",
            "link set eth0 up",
            *(self._way(name, other) for other in self._numbers if other != name),
        )

    def unplug(self, name: str) -> None:
        """Take a machine's cable away: from now on nothing of it is heard, whatever it does."""
        assert self._switch is not None, "the network is entered"
        self._switch.ip(f"link del port{self._numbers[name]}")
        self._machines.pop(name).close()

    def cut(self, ways: Iterable[tuple[str, str]]) -> None:
        """Lose what is sent from the first of each two machines to the second."""
        ways = [way for way in ways if way not in self._cuts]
        self._cuts.update(ways)
        self._apply(ways)

    def mend(self) -> None:
        """End all cuts."""
        ways, self._cuts = sorted(self._cuts), set()
        self._apply(ways)

    def slow_down(self, name: str) -> None:
        """Send what a machine sends late, and lose some of it."""
        for discipline in SLOW:
            command = ["tc", "qdisc", "replace", "dev", "eth0", "root", *discipline]
            with suppress(Impossible):
                _run([*self.machine(name).prefix(), *command])
                return
        raise Impossible("the kernel has neither netem nor tbf")

    def speed_up(self, name: str) -> None:
        """End ``slow_down``. Harmless when a machine is as fast as ever."""
        with suppress(Impossible):
            _run([*self.machine(name).prefix(), "tc", "qdisc", "del", "dev", "eth0", "root"])

    def _apply(self, ways: Iterable[tuple[str, str]]) -> None:
        by_sender: dict[str, list[str]] = {}
        for sender, receiver in ways:
            if sender in self._machines:
                by_sender.setdefault(sender, []).append(self._way(sender, receiver))
        for sender, lines in by_sender.items():
            self.machine(sender).ip(*lines)

    def _way(self, sender: str, receiver: str) -> str:
        number = 0 if (sender, receiver) in self._cuts else self._numbers[receiver]
        return (
            f"neigh replace {self.address(receiver)} lladdr {_mac(number)} dev eth0 nud permanent"
        )


def _mac(number: int) -> str:
    """Return the hardware address of a machine; of nobody for 0."""
    return f"02:00:00:00:77:{number:02x}"


def _run(command: Sequence[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Impossible(f"{' '.join(command)}: {done.stderr.strip()}")
