"""One broker in a child process of this one, on a disk that can be cut.

Owns the child: it is forked, so that a start costs milliseconds and not an interpreter. The broker
is the real one, on the real loop, net and files. Beside its Kafka port it hears orders from the
parent by a socket pair (count from here and cut at the n-th change; do your housekeeping now; stop
in an orderly way), because a campaign cannot wait for timers. Lines:

    child    ready <port> | failed <why> | cut <call> <path> | done <what>
    parent   arm <nth> <kind> <seed> <microseconds> | count | <housekeeping> | stop
"""

import asyncio
import contextlib
import os
import signal
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from ottla.broker import Broker
from ottla.cli.serve import _loop_factory, read_config
from ottla.env.clock import SystemClock
from ottla.env.executor import ThreadExecutor
from ottla.env.faulty_disk import DiskCall
from ottla.env.real_disk import RealDisk
from ottla.env.real_net import AsyncioNet
from ottla.env.rng import SystemRng
from ottla.environment import FLUSH_THREADS, Environment
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.log.append import own
from ottla.pending import Pending
from powercuts.cutting import NEVER, CutKind, CutPlan, CuttingDisk, sync_together

T = TypeVar("T")
ANSWER_SECONDS = 60.0


class Cut(Exception):
    """The node is gone, as planned; says at which call."""


class NodeFailed(Exception):
    """The node did not do what it was told, or died without being cut."""


class CuttableNode(Protocol):
    """What a client of the campaign needs of a node."""

    bootstrap: str
    changes: int
    cut_at: str

    def start(self, plan: CutPlan = NEVER) -> None:
        """Return when clients are served. Raises Cut, NodeFailed."""

    def arm(self, plan: CutPlan) -> None:
        """Count, or let the time run, from now on."""

    def count(self) -> int:
        """Return the changes since then."""

    def order(self, text: str) -> str:
        """Let it do some housekeeping."""

    def await_cut(self) -> None:
        """The node was seen to be gone. Always raises Cut or NodeFailed."""

    def was_cut(self) -> bool:
        """Tell, after a wrong answer, whether it was given while the power went."""

    def stop(self) -> None:
        """Let it stop in an orderly way. Raises Cut, NodeFailed."""

    def kill(self) -> None:
        """End the process now."""


class Node:
    """A node on ``data``; ``start``, order, and its end: ``stop``, ``kill`` or a Cut."""

    def __init__(
        self,
        data: Path,
        mount_point: Path,
        options: Mapping[str, object],
        log_path: Path,
        *,
        log_dirs: Sequence[str] = (".",),
    ) -> None:
        """``log_dirs`` are names in ``data``."""
        self._data = data
        self._log_dirs = log_dirs
        self._mount_point = mount_point
        self._options = options
        self._log_path = log_path
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._process = 0
        self.bootstrap = ""
        self.start_seconds = 0.0
        self.changes = 0
        """Asked for since it was armed; known when it has stopped."""
        self.cut_at = ""
        """The call before which it was cut: ``rename /volume/...``."""

    def start(self, plan: CutPlan = NEVER) -> None:
        """Fork and wait until clients are served. Raises Cut, NodeFailed."""
        begin = time.monotonic()
        ours, theirs = socket.socketpair()
        process = os.fork()
        if process == 0:
            ours.close()
            self._be_the_child(theirs, plan)
        theirs.close()
        ours.settimeout(ANSWER_SECONDS)
        self._socket, self._process, self._buffer, self.cut_at = ours, process, b"", ""
        kind, _, rest = self._line().partition(" ")
        if kind != "ready":
            raise NodeFailed(f"{kind} {rest}")
        self.bootstrap = f"127.0.0.1:{rest}"
        self.start_seconds = time.monotonic() - begin

    def _be_the_child(self, teller: socket.socket, plan: CutPlan) -> None:
        """Serve, and never return into the parent's code."""
        code = 1
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            log = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sync_together()
            disk = CuttingDisk(RealDisk(), str(self._mount_point), teller)
            disk.arm(plan)
            log_dirs = ",".join(str(self._data / name) for name in self._log_dirs)
            definitions = [f"{key}={value}" for key, value in self._options.items()]
            broker = Broker(
                read_config(None, definitions, data=log_dirs, port=0),
                environment=Environment(
                    disk=disk,
                    net=AsyncioNet(),
                    clock=SystemClock(),
                    rng=SystemRng(),
                    executor=ThreadExecutor(FLUSH_THREADS, "disk"),
                    store_executor=ThreadExecutor(1, "metadata"),
                ),
            )
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_Child(broker, disk, teller).serve())
            code = 0
        except (OttlaError, OSError) as error:
            why = f"{type(error).__name__}: {error}".replace("\n", " ")
            teller.sendall(f"failed {why}\n".encode())
        except BaseException:  # noqa: BLE001 - the parent finds it in the log
            traceback.print_exc()
        finally:
            os._exit(code)

    def order(self, text: str) -> str:
        """Tell the node something and return its answer. Raises Cut, NodeFailed."""
        assert self._socket is not None, "started"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(text.encode() + b"\n")
        kind, _, rest = self._line().partition(" ")
        if kind != "done":
            raise NodeFailed(f"{text}: {kind} {rest}")
        return rest

    def arm(self, plan: CutPlan) -> None:
        """Count changes from now on, and end at the planned one."""
        self.order(f"arm {plan.nth} {plan.kind.value} {plan.seed} {plan.after_us}")

    def count(self) -> int:
        """Return the changes since it was armed."""
        return int(self.order("count"))

    def stop(self) -> None:
        """Let it stop in an orderly way. Raises Cut, NodeFailed."""
        self.changes = int(self.order("stop"))
        self._reap()

    def kill(self) -> None:
        """End the process now. Harmless when it is gone."""
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
        self._reap()

    def await_cut(self) -> None:
        """The node was seen to be gone: take its last words. Always raises Cut or NodeFailed."""
        while True:
            self._line()

    def was_cut(self) -> bool:
        """Tell, after a wrong answer, whether it was given while the power went."""
        if self._socket is None:
            return bool(self.cut_at)
        self._socket.settimeout(1)
        try:
            self._line()
        except Cut:
            return True
        except NodeFailed:
            return False
        return False

    def _line(self) -> str:
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                text = line.decode()
                if text.startswith("cut "):
                    self.cut_at = text[4:].replace(f"{self._data}/", "")
                    self._wait_for_end()
                    raise Cut(self.cut_at)
                return text
            assert self._socket is not None, "started"
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                self.kill()
                raise NodeFailed(f"silent for {ANSWER_SECONDS} s") from None
            except ConnectionResetError:
                data = b""
            if not data:
                code = self._reap()
                tail = self._log_path.read_text(errors="replace")[-3000:]
                raise NodeFailed(f"died by itself (status {code}):\n{tail}")
            self._buffer += data

    def _wait_for_end(self) -> None:
        """Between its last words and its end a node may still be killing the file system."""
        self._reap()

    def _reap(self) -> int:
        process, self._process = self._process, 0
        code = os.waitpid(process, 0)[1] if process else 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        return code


# -- in the child ---------------------------------------------------------------------------------


async def _outcome(pending: Pending[T]) -> T:
    waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    pending.on_done(lambda done: waiter.set_result(done.value))
    return await waiter


class _Child:
    """Serves and takes orders."""

    def __init__(self, broker: Broker, disk: CuttingDisk, teller: socket.socket) -> None:
        self._broker = broker
        self._disk = disk
        self._teller = teller
        self._buffer = b""
        self._orders: asyncio.Queue[str] = asyncio.Queue()

    async def serve(self) -> None:
        """Until it is told to stop, or the parent is gone."""
        await self._broker.start()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._teller.fileno(), self._on_readable)
        self._tell(f"ready {self._broker.address[1]}")
        while True:
            order = await self._orders.get()
            if order == "stop":
                break
            self._tell(f"done {await self._do(order)}")
        loop.remove_reader(self._teller.fileno())
        await self._broker.stop()
        self._tell(f"done {self._disk.changes}")

    def _on_readable(self) -> None:
        data = self._teller.recv(65536)
        if not data:
            os._exit(2)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._orders.put_nowait(line.decode())

    def _tell(self, text: str) -> None:
        self._teller.sendall(text.encode() + b"\n")

    async def _do(self, order: str) -> object:
        name, *words = order.split()
        node = self._broker.node
        replicas, keeper, logs = node.work.replica_manager, node.work.housekeeper, node.data.logs
        match name:
            case "arm":
                kind, seed, after_us = CutKind(words[1]), int(words[2]), int(words[3])
                self._disk.arm(CutPlan(int(words[0]), kind, seed, after_us))
            case "count":
                return self._disk.changes
            case "expect":
                assert self._disk.counts[DiskCall(words[0])], f"no {words[0]} was asked for"
            case "offline":
                return len(logs.offline)
            case "checkpoint":
                await keeper.deletion.checkpoint()
            case "retain":
                await keeper.deletion.delete_old_segments()
            case "own":
                where = TopicPartition(words[0], int(words[1]))
                records = memoryview(bytearray.fromhex(words[2]))
                outcomes = replicas.appends.many(
                    [(where, own(records))], acks=-1, timeout_ms=30_000
                )
                if isinstance(outcomes, Pending):
                    outcomes = await _outcome(outcomes)
                (outcome,) = outcomes
                return outcome.base_offset
            case "compact":
                await keeper.cleaner.clean()
            case "remove":
                logs.remove_deleted()
            case _:
                raise NodeFailed(f"unknown order {order}")
        return order
