"""Gives each log directory of this node a generation, and finds those that are old copies.

Owns when that is done: a start looks before it acts on the metadata; it gives new generations when
this node has left the ISRs of what an old copy lacks; a further one comes every minute while
records come, and at a clean stop. ``cluster.generations`` judges. Only one of several nodes does
it: a node that is alone has nobody to copy from.

A start also supersedes the directories that are not here any more and may have been replaced: those
that were given up, and while an old copy serves, all that are away. One whose id nobody knows (its
meta.properties was lost, or it was given up before there were generations) is judged by what was
known by its path.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from posixpath import dirname
from typing import NamedTuple

from ottla.cluster.generations import Judgement, judge, superseded
from ottla.cluster.lineage import (
    TOKEN_BYTES,
    Remembered,
    next_stamps,
    overwrite_lineage,
    read_lineages,
    write_lineage,
)
from ottla.env.executor import run
from ottla.environment import Environment
from ottla.housekeeping.schedule import Schedule
from ottla.ids import NodeId
from ottla.log.directories.manager import LogManager
from ottla.log.files.faults import is_out_of_space
from ottla.log.files.layout import GENERATION
from ottla.metadata.keys import Keys
from ottla.metadata.mirror import update
from ottla.metadata.store import MetadataError, MetadataStore
from ottla.metadata.values import (
    Stamp,
    decode_generations,
    decode_known_broker,
    encode_generations,
)
from ottla.node.identity import has_partitions

logger = logging.getLogger(__name__)

EACH_TURN = 2_000
"""Logs looked at in one turn of the loop: about a millisecond."""
INTERVAL_MS = 60_000
"""How much time a copy may lack at most without being noticed."""
_OLD_COPY = (
    "the log directory %s is an old copy of what this node has used last: other replicas lead what"
    " is in it until it has what they have"
)
_OLDER_METADATA = (
    "the log directory %s is newer than the metadata, which was restored from an old copy"
)
_NOT_NOW = "the log directories get no new generation yet: %s"


Known = dict[str, tuple[Stamp, ...]]
"""What the store says of each directory of this node that had a generation, by id. No id goes."""


class _Directory(NamedTuple):
    """One that is online."""

    path: str
    directory_id: str


class Generations:
    """The generations of one node's log directories."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        node_id: NodeId,
        logs: LogManager,
        environment: Environment,
    ) -> None:
        self._store = store
        self._key = keys.generations(node_id)
        self._ever_key = keys.known_broker(node_id)
        self._logs = logs
        self._env = environment
        self._found: dict[str, Remembered] = {}
        """Use: by path, what each directory says, durably."""
        self._contents: int | None = None
        """Use: a sum over the logs as the last generation was given; None: none was."""
        self._is_behind = False
        """Whether a directory has not taken the last one that it was given."""
        self._has_old_copies = False
        self._one_at_a_time = asyncio.Lock()

    async def look(self) -> frozenset[str]:
        """Return the paths of the log directories that are old copies. Raises MetadataError.

        Before the store is told which directories this node has now (``known_directories``).
        """
        directories = self._directories()
        known, ever = await self._known(), await self._ever()
        strange = [
            each
            for each in directories
            if known and each.directory_id not in known and each.directory_id not in ever
        ]
        self._found, used = await run(self._env.executor, lambda: self._read(directories, strange))
        old: list[str] = []
        nobodys: dict[str, tuple[Stamp, ...]] = {}
        for path, directory_id in directories:
            found, stamps = self._found.get(path), known.get(directory_id, ())
            if path in used:
                formers = [known.get(one, ()) for one, place in ever.items() if place == path]
                stamps = tuple(stamp for each in formers for stamp in each)
            judgement = judge(found, stamps)
            if judgement is Judgement.OLD_COPY:
                logger.error(_OLD_COPY, path)
                old.append(path)
                if path in used:
                    nobodys[directory_id] = superseded(found, stamps, self._token())
            elif judgement is Judgement.OLDER_METADATA:
                logger.warning(_OLDER_METADATA, path)
        if nobodys:  # By its path nobody would tell it again if this start were cut short.
            await self._change(lambda known: known.update(nobodys))
        self._has_old_copies = bool(old)
        return frozenset(old)

    async def begin(self) -> None:
        """Give every directory a new generation: before this node acknowledges a record.

        A disk that takes nothing keeps the one it has. Raises MetadataError.
        """
        contents = await self._sum()
        await self._give(awaited=() if self._has_old_copies else await self._ever())
        self._contents = contents

    async def go_on(self) -> None:
        """Give further ones if the logs have changed since the last time.

        What fails is told, and done the next time.
        """
        contents = await self._sum()
        if self._contents is None or (self._contents == contents and not self._is_behind):
            return
        try:
            await self._give()
        except MetadataError as error:
            logger.warning(_NOT_NOW, error)
        else:
            self._contents = contents

    def keep(self, schedule: Schedule) -> None:
        """Have it done in time."""
        schedule.every(INTERVAL_MS, self.go_on)

    async def _give(self, awaited: Collection[str] | None = None) -> None:
        """Let the store know the new ones beside those before, until the directories have them.

        ``awaited``: ids of directories that may come back; all others that are not online are
        superseded. None: none is.
        """
        token = self._token()
        async with self._one_at_a_time:
            directories = self._directories()
            here = {each.directory_id for each in directories}

            def begun(known: Known) -> None:
                gone = () if awaited is None else known.keys() - here - set(awaited)
                for one in gone:
                    known[one] = superseded(None, known[one], token)
                for path, directory_id in directories:
                    before = self._found.get(path)
                    known[directory_id] = next_stamps(before, known.get(directory_id, ()), token)

            given = await self._change(begun)
            written = await run(self._env.executor, lambda: self._write(directories, given))
            self._found.update(written)
            self._is_behind = len(written) < len(directories)

            def ended(known: Known) -> None:
                for path, directory_id in directories:
                    if path in written:
                        known[directory_id] = (written[path].stamp,)

            await self._change(ended)

    async def _known(self) -> Mapping[str, tuple[Stamp, ...]]:
        entry = await self._store.get(self._key)
        return {} if entry is None else decode_generations(entry.value)

    async def _ever(self) -> Mapping[str, str]:
        """Return the directories that this node has or waits for: by id, where it was last."""
        entry = await self._store.get(self._ever_key)
        return {} if entry is None else decode_known_broker(entry.value).directories

    def _token(self) -> str:
        return self._env.rng.random_bytes(TOKEN_BYTES).hex()

    async def _change(self, change: Callable[[Known], None]) -> Mapping[str, tuple[Stamp, ...]]:
        """Change what the store says, and return it. Raises MetadataError."""

        def changed(value: bytes | None) -> bytes:
            known = {} if value is None else dict(decode_generations(value))
            change(known)
            return encode_generations(known)

        entry = await update(self._store, self._key, changed)
        assert entry is not None, "generations are never deleted"
        return decode_generations(entry.value)

    def _directories(self) -> list[_Directory]:
        return [
            _Directory(each.path, each.directory_id)
            for each in self._logs.online()
            if each.directory_id
        ]

    async def _sum(self) -> int:
        """Return a number that is another one when records or logs came, went, or moved."""
        total = 0
        for number, log in enumerate(list(self._logs.logs.values()), 1):
            span = log.log_start_offset, log.log_end_offset
            total += hash((log.topic_partition, log.topic_id, dirname(log.directory), *span))
            if number % EACH_TURN == 0:
                await asyncio.sleep(0)
        return total

    # In threads.

    def _read(
        self, directories: Iterable[_Directory], strange: Iterable[_Directory]
    ) -> tuple[dict[str, Remembered], set[str]]:
        """Return by path what the directories say, and paths of ``strange`` with partitions."""
        files = {f"{path}/{GENERATION}": path for path, _ in directories}
        found = read_lineages(self._env.disk, files)
        used = {path for path, _ in strange if self._has_partitions(path)}
        return {files[file]: remembered for file, remembered in found.items()}, used

    def _has_partitions(self, path: str) -> bool:
        try:
            return has_partitions(self._env.disk, path)
        except OSError as error:
            logger.error("%s cannot be read: %s", path, error)  # noqa: TRY400 - that is all
            return True

    def _write(
        self, directories: Iterable[_Directory], given: Mapping[str, tuple[Stamp, ...]]
    ) -> dict[str, Remembered]:
        """Write into every directory that takes it; return by path what was written."""
        written: dict[str, Remembered] = {}
        for path, directory_id in directories:
            remembered = Remembered(given[directory_id][0])
            try:
                self._write_one(f"{path}/{GENERATION}", remembered)
            except OSError as error:
                logger.warning(_NOT_NOW, error)
            else:
                written[path] = remembered
        return written

    def _write_one(self, file: str, remembered: Remembered) -> None:
        """Write it in place where there is no space: one that is not exactly right is an old one.

        Else records would be taken by a generation that an old copy has, too.
        """
        try:
            write_lineage(self._env.disk, file, remembered)
        except OSError as error:
            if not is_out_of_space(error) or not self._env.disk.exists(file):
                raise
            overwrite_lineage(self._env.disk, file, remembered)
