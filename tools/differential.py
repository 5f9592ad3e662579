"""The same requests to two brokers, and their answers compared field by field.

A script is a function of a Play: it calls, sends and receives on named connections, and may use
what it was answered (member ids, say) in what it asks next. Each broker gets its own Play of the
same script; ``compare`` puts the transcripts side by side. What must differ is made equal first:
random ids are numbered as they come up, ports and times and the wording of messages are left out,
and lists without an order (a Java hash map's) are sorted.
"""

import itertools
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from ottla.coordinator.hashing import partition_for
from tools.wire_client import Closed, WireClient

SHORT_UUID = re.compile(r"(?=.*[0-9A-Z])[0-9A-Za-z_][0-9A-Za-z_-]{21}")
"""As Kafka writes ids of its own making."""
UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LEFT_OUT = frozenset(("correlation_id", "throttle_time", "port", "node_id", "timestamp"))
MESSAGES = frozenset(("error_message",))
OFFSETS_PARTITIONS = 50
"""offsets.topic.num.partitions: so many, or one."""
NOT_READY = frozenset((14, 15, 16))
"""Coordinator loading, not available, not here: answers of a broker that has just started."""


class Silence(AssertionError):
    """A broker that does not answer: the script cannot go on."""


class Step(NamedTuple):
    """One exchange, as it is compared."""

    label: str
    request: str
    answer: Any


class Play:
    """One run of a script against one broker. A context manager: closes its connections."""

    def __init__(self, bootstrap: str, *, client_host: str = "127.0.0.1") -> None:
        self.bootstrap = bootstrap
        self.steps: list[Step] = []
        self._client_host = client_host
        self._connections: dict[str, WireClient] = {}
        self._names: dict[str, str] = {}
        self._pending: dict[str, list[tuple[str, str, int]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    def connection(self, name: str) -> WireClient:
        """Return the connection of this name, opened on first use."""
        if name not in self._connections:
            self._connections[name] = WireClient(self.bootstrap, client_id=name)
        return self._connections[name]

    def drop(self, name: str) -> None:
        """Close a connection without a word, as a client that dies."""
        self._connections.pop(name).close()
        self._pending.pop(name, None)

    # Not compared.

    def prepare(self, api: str, version: int, /, **fields: Any) -> dict[str, Any]:
        """Call without a trace in the transcript."""
        return self.connection("prepare").call(api, version, **fields)

    def create_topic(self, name: str, partitions: int) -> uuid.UUID:
        """Create a topic; returns its id."""
        return self.connection("prepare").create_topic(name, partitions)

    def wait_for_coordinator(self, *groups: str) -> None:
        """Wait until the groups' coordinators serve."""
        deadline = time.monotonic() + 60
        for group in groups:
            while True:
                found = self.prepare("find_coordinator", 4, key_type=0, coordinator_keys=[group])
                code = found["coordinators"][0]["error_code"]
                if code == 0:
                    asked = [{"group_id": group, "topics": []}]
                    fetched = self.prepare("offset_fetch", 8, groups=asked)
                    code = fetched["groups"][0]["error_code"]
                if code not in NOT_READY:
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no coordinator for {group!r}: error {code}")
                time.sleep(0.1)

    def wait_for_topics(self, group: str, *topics: str) -> None:
        """Wait until the group's coordinator knows the topics: Kafka's hears of them late.

        A group of the same coordinator asks for them, and is deleted then.
        """
        same = partition_for(group, OFFSETS_PARTITIONS)
        names = (f"probe-{number}" for number in itertools.count())
        probe = next(name for name in names if partition_for(name, OFFSETS_PARTITIONS) == same)
        asked = {"group_id": probe, "member_id": "probe", "rebalance_timeout": 1_000}
        deadline = time.monotonic() + 60
        while True:
            joined = self.prepare(
                "consumer_group_heartbeat",
                1,
                **asked,
                member_epoch=0,
                subscribed_topic_names=list(topics),
                topic_partitions=[],
            )
            given = (joined["assignment"] or {"topic_partitions": []})["topic_partitions"]
            self.prepare("consumer_group_heartbeat", 1, **asked, member_epoch=-1)
            if len(given) == len(topics):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"no coordinator that knows {topics}: {joined}")
            time.sleep(0.05)
        self.prepare("delete_groups", 2, groups_names=[probe])

    # Compared.

    def call(self, name: str, api: str, version: int, /, **fields: Any) -> dict[str, Any]:
        """Ask and wait for the answer, which is returned as it came."""
        self.send(name, api, version, **fields)
        return self.receive(name)

    def send(self, name: str, api: str, version: int, /, **fields: Any) -> None:
        """Ask without waiting: ``receive`` later."""
        connection = self.connection(name)
        connection.send_frame(connection.encode(api, version, **fields))
        request = f"{api} v{version} {self._plain(fields)}"
        self._pending.setdefault(name, []).append((request, api, version))

    def receive(self, name: str) -> dict[str, Any]:
        """Wait for the answer to the oldest request of a connection."""
        request, api, version = self._pending[name].pop(0)
        try:
            answer = self.connection(name).decode(
                api, version, self.connection(name).receive_frame()
            )
        except Closed:
            answer = {"closed": True}
        except TimeoutError:
            self.note(name, request, "silence")
            raise Silence(f"no answer to step {len(self.steps) - 1}, {request}") from None
        self.note(name, request, answer)
        return answer

    def is_waiting(self, name: str, *, seconds: float = 0.3) -> bool:
        """Note and tell whether the oldest request of a connection is not answered for so long."""
        connection = self.connection(name)
        connection.socket.settimeout(seconds)
        try:
            is_waiting = not connection.socket.recv(1, 2)  # MSG_PEEK; b"" would be a close.
        except TimeoutError:
            is_waiting = True
        finally:
            connection.socket.settimeout(20.0)
        self.note(name, f"waits: {self._pending[name][0][0]}", is_waiting)
        return is_waiting

    def note(self, name: str, request: str, answer: object) -> None:
        """Add to the transcript what was found by other ways than a request."""
        label = f"{len(self.steps)} ({name})"
        self.steps.append(Step(label, request, self._plain(answer)))

    # What is made equal.

    def _plain(self, value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            kept = {one: value[one] for one in value if one not in LEFT_OUT}
            # Single values first: they give names to what the lists repeat in any order.
            ordered = sorted(kept, key=lambda one: isinstance(kept[one], list))
            return {one: self._plain(kept[one], one) for one in ordered}
        if isinstance(value, list | tuple):
            return sorted((self._plain(one) for one in value), key=_sortable)
        if key in MESSAGES:
            return bool(value)
        if isinstance(value, uuid.UUID):
            return self._name(str(value))
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, str):
            if SHORT_UUID.fullmatch(value):
                return self._name(value)
            return UUID_TEXT.sub(lambda found: self._name(found[0]), value)
        return value

    def _name(self, text: str) -> str:
        return self._names.setdefault(text, f"<id {len(self._names)}>")


def _sortable(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


Script = Callable[[Play], None]


def compare(script: Script, one: str, other: str) -> tuple[int, list[str]]:
    """Play ``script`` on two brokers; return the count of steps and every difference."""
    transcripts = []
    for bootstrap in (one, other):
        with Play(bootstrap) as play:
            script(play)
            transcripts.append(play.steps)
    first, second = transcripts
    differences = [
        f"{mine.label} {mine.request}\n  {mine.answer}\n  {theirs.answer}"
        for mine, theirs in zip(first, second, strict=False)
        if mine.answer != theirs.answer or mine.request != theirs.request
    ]
    if len(first) != len(second):
        differences.append(f"{len(first)} steps against {len(second)}")
    return min(len(first), len(second)), differences
