"""Refuses to serve when the metadata store and this node's directories are of different histories.

Owns when it is looked: before anything of the store is acted on, before each registration, and
every few seconds; and when both sides are stamped: at a start, and after each change of a partition
that this node has, changes that come together by one stamp. Nobody waits for that but the start.
``cluster.lineage`` decides. Only hosts do it: a store beside the data is restored with it.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from errno import EIO

from ottla.cluster.lineage import (
    ANEW,
    TOKEN_BYTES,
    Parted,
    Remembered,
    newest_of,
    next_stamps,
    parted,
    read_lineages,
    write_lineage,
)
from ottla.config.broker import LOG_DIRS_GIVEN_UP
from ottla.env.clock import pause
from ottla.env.executor import run
from ottla.env.tasks import begin_task
from ottla.environment import Environment
from ottla.housekeeping.schedule import Schedule
from ottla.ids import NodeId
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.log.directories.manager import LogManager
from ottla.log.files.layout import LINEAGE
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.metadata.keys import Keys
from ottla.metadata.mirror import update
from ottla.metadata.store import MetadataError, MetadataStore
from ottla.metadata.values import decode_stamps, encode_stamps

logger = logging.getLogger(__name__)

LOOK_INTERVAL_MS = 5000
RETRY_SECONDS = 1.0
_NOT_YET = "what this node acts on is not stamped yet: %s"


class Lineage:
    """The stamps of one node."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        node_id: NodeId,
        logs: LogManager,
        environment: Environment,
        *,
        on_parted: Callable[[LogDirectoryUnusable], None],
    ) -> None:
        """``on_parted``: told on the loop when the histories have parted while this node runs."""
        self._store = store
        self._key = keys.stamps(node_id)
        self._node_id = node_id
        self._logs = logs
        self._env = environment
        self._on_parted = on_parted
        self._remembered: Remembered | None = None
        """Use: what the directories say, durably. None: nothing."""
        self._revision = 0
        """Use: of the newest change of a partition of this node."""
        self._is_due = False
        """Use: a change is not stamped yet."""
        self._has_begun = False
        self._task: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def look(self) -> None:
        """Compare both sides. Raises LogDirectoryUnusable when they have parted; MetadataError."""
        async with self._one_at_a_time:
            found, revision = await self._store.scan(self._key)
            values = [entry.value for entry in found if entry.key == self._key]
            known = decode_stamps(values[0]) if values else ()
            self._refuse(parted(self._remembered, known, revision))

    async def look_first(self) -> None:
        """Read what the directories say, and look; before anything of the store is acted on."""
        self._remembered = await run(self._env.executor, self._read)
        await self.look()

    async def look_again(self) -> None:
        """Look while this node runs: the store may have been restored unnoticed."""
        with suppress(MetadataError, LogDirectoryUnusable):  # It is told, or asked again.
            await self.look()

    async def begin(self) -> None:
        """Stamp both sides, and from now on after each change. Raises MetadataError.

        A disk that takes nothing now is asked again later: a full one is no reason not to serve.
        """
        self._has_begun = True
        self._is_due = False
        try:
            await self._stamp()
        except OSError as error:
            logger.warning(_NOT_YET, error)
            self._is_due = True
        self._go_on()

    def keep(self, schedule: Schedule) -> None:
        """Have it looked at in time."""
        schedule.every(LOOK_INTERVAL_MS, self.look_again)

    def apply(self, _: MetadataImage, delta: MetadataDelta) -> None:
        """Have a change of this node's partitions stamped; a listener of the image."""
        for change in delta.partitions:
            states = (change.old, change.new)
            if any(state is not None and self._node_id in state.replicas for state in states):
                self._is_due = True
                self._revision = delta.revision
                break
        self._go_on()

    def stop(self) -> None:
        """Stamp nothing more."""
        self._has_begun = False
        if self._task is not None:
            self._task.cancel()

    # The work.

    def _go_on(self) -> None:
        if self._is_due and self._has_begun and self._task is None:
            self._task = begin_task(self._stamp_all(), name="stamp", ended=self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("the metadata could not be stamped", exc_info=error)
        else:
            self._go_on()

    async def _stamp_all(self) -> None:
        while self._is_due:
            self._is_due = False
            acted = self._revision
            try:
                await self._stamp()
            except LogDirectoryUnusable:
                return
            except (MetadataError, OSError) as error:
                logger.warning(_NOT_YET, error)
                self._is_due = True
                await self._note(acted)
                await pause(self._env.clock, RETRY_SECONDS)

    async def _stamp(self) -> None:
        token = self._env.rng.random_bytes(TOKEN_BYTES).hex()

        def changed(value: bytes | None) -> bytes:
            known = () if value is None else decode_stamps(value)
            # A revision that was acted on is looked at by ``look``.
            before = None if self._remembered is None else self._remembered._replace(acted=0)
            self._refuse(parted(before, known, 0))
            return encode_stamps(next_stamps(before, known, token))

        async with self._one_at_a_time:
            entry = await update(self._store, self._key, changed)
            assert entry is not None, "stamps are never deleted"
            await self._remember(Remembered(decode_stamps(entry.value)[0]))

    async def _note(self, acted: int) -> None:
        """Tell the directories what was acted on: the store may not come back as it was."""
        async with self._one_at_a_time:
            if self._remembered is not None and self._remembered.acted < acted:
                with suppress(OSError):
                    await self._remember(self._remembered._replace(acted=acted))

    async def _remember(self, remembered: Remembered) -> None:
        await run(self._env.executor, lambda: self._write(remembered))
        self._remembered = remembered

    def _refuse(self, why_not: Parted | None) -> None:
        if why_not is not None:
            directories = self._logs.directories
            known = ",".join(each.directory_id for each in directories.values())
            anew = f"with an empty directory and -D {LOG_DIRS_GIVEN_UP.key}={known}"
            fix = why_not.fix.replace(ANEW, anew)
            failure = LogDirectoryUnusable(next(iter(directories)), why_not.why, fix)
            if self._has_begun:
                self._on_parted(failure)
            raise failure

    # In threads.

    def _paths(self) -> list[str]:
        directories = self._logs.directories.values()
        return [f"{each.path}/{LINEAGE}" for each in directories if each.is_online]

    def _read(self) -> Remembered | None:
        return newest_of(read_lineages(self._env.disk, self._paths()).values())

    def _write(self, remembered: Remembered) -> None:
        """Write into every directory that takes it. Raises OSError when none does."""
        paths = self._paths()
        failed: list[OSError] = []
        for path in paths:
            try:
                write_lineage(self._env.disk, path, remembered)
            except OSError as error:
                failed.append(error)
        if len(failed) == len(paths):
            raise failed[0] if failed else OSError(EIO, "no log directory is online")
