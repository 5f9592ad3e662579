"""What one principal may do from one host: the authorizer's decisions, remembered.

Owns the memory of decisions and who shares it. All connections of a principal from one host share
one ``Access``. It forgets everything as soon as an ACL changes, so a request never meets a decision
from before. All of them share one memory (``Room``): a client chooses what it asks about, and may
come from many hosts. Pure: who listens to decisions (an audit log) is given.
"""

from collections.abc import Callable
from weakref import WeakValueDictionary

from ottla.ids import Principal
from ottla.security.acl import Operation, Resource, ResourceType
from ottla.security.authorizer import Authorizer

DECISIONS_MAX = 10_000
"""The most decisions that are remembered for one principal and host; then all are forgotten."""
DECISION_BYTES = 150
"""What a decision takes beside the characters of its name."""
BYTES_MAX = (DECISION_BYTES + 250) * DECISIONS_MAX
"""The most bytes that they take: a client may ask about names that are no topic's."""
OWN_BYTES = 8_000
"""So much each may remember whatever others do (some forty topics), which is less than what its
connection takes. So who uses the common room up does not slow down those who ask about little. Also
the piece in which it takes more."""
_FULL_AT = DECISIONS_MAX - OWN_BYTES // DECISION_BYTES
"""So many decisions leave no room for those that fit into a further piece."""
ROOM_BYTES = 4 * BYTES_MAX
"""What all may remember together beyond that: four that ask about everything, or hundreds that use
a hundred topics each. Without room a decision costs some microseconds again, and nothing else."""
CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")
"""The only resource of its type."""
_TOPIC, _GROUP, _TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
)

Asked = tuple[Operation, ResourceType, str | None]
"""What for, and of which resource; None: of any of the type. An empty name is one like others."""
Hear = Callable[["Access", Operation, Resource, bool], None]
"""Hears of each decision that counts: who asked for what, and whether it was allowed."""


class Room:
    """The memory in which all remember their decisions."""

    __slots__ = ("left_bytes",)

    def __init__(self, size_bytes: int = ROOM_BYTES) -> None:
        self.left_bytes = size_bytes
        """Invariant: never negative; all of it when no ``Access`` is left."""


class Access:
    """The decisions about one principal and host."""

    __slots__ = (
        *("__weakref__", "_decisions", "_hear", "_left_bytes", "_room", "_taken_bytes"),
        *("_writable", "authorizer", "epoch", "host", "principal", "readable"),
    )

    def __init__(
        self,
        authorizer: Authorizer,
        principal: Principal,
        host: str,
        hear: Hear,
        room: Room | None = None,
    ) -> None:
        """Build it; ``room``: what it shares with others, None: one of its own."""
        self._room = Room() if room is None else room
        self._taken_bytes = 0
        """Use: of the room, piece by piece. Invariant: given back when it forgets or goes."""
        self.principal = principal
        self.host = host
        self.authorizer = authorizer
        """Use: its ``epoch`` grows whenever a decision may have changed."""
        self._hear = hear
        self._decisions: dict[Asked, bool] = {}
        self._left_bytes = OWN_BYTES
        """Use: for further decisions, of its own and of what it has taken of the room."""
        self.epoch = authorizer.epoch
        """Invariant: all of ``_decisions`` were made by the ACLs of this epoch."""
        self.readable: set[str] = set()
        self._writable: set[str] = set()
        """Use: topics of which nobody has to hear that they may be read, or written to. Invariant:
        by the ACLs of ``epoch``; there is a decision for each."""

    def may(
        self, operation: Operation, kind: ResourceType, name: str, *, quiet: bool = False
    ) -> bool:
        """Tell whether this may be done.

        ``quiet``: nobody shall hear of a denial, because it only leaves something out of an answer,
        or because there is another way to be allowed.
        """
        authorizer = self.authorizer
        if self.epoch != authorizer.epoch:
            self._forget()
        asked = (operation, kind, name)
        allowed = self._decisions.get(asked)
        if allowed is None:
            allowed = authorizer.may(self.principal, self.host, operation, Resource(kind, name))
            # One wide character makes all of a name as wide.
            size = DECISION_BYTES + (len(name) if name.isascii() else 4 * len(name))
            if size <= self._left_bytes or self._find_room(size):
                self._left_bytes -= size
                self._decisions[asked] = allowed
        if authorizer.tells_allowed if allowed else not quiet:
            self._hear(self, operation, Resource(kind, name), allowed)
        return allowed

    def _find_room(self, size: int) -> bool:
        """Have ``size`` bytes left, if need be by forgetting all decisions, or return False."""
        piece = max(size, OWN_BYTES)
        is_full = len(self._decisions) > _FULL_AT or self._taken_bytes + piece > BYTES_MAX
        if is_full or piece > self._room.left_bytes:
            self._forget()
            if size <= self._left_bytes:
                return True
            if piece > self._room.left_bytes:
                return False
        self._room.left_bytes -= piece
        self._taken_bytes += piece
        self._left_bytes += piece
        return True

    def _forget(self) -> None:
        self._decisions.clear()
        self._room.left_bytes += self._taken_bytes
        self._taken_bytes, self._left_bytes = 0, OWN_BYTES
        self.readable.clear()
        self._writable.clear()
        self.epoch = self.authorizer.epoch

    def __del__(self) -> None:
        """Give the room back when the last connection is gone."""
        self._room.left_bytes += self._taken_bytes

    def may_fetch(self, topic: str) -> bool:
        """Tell whether a consumer may read a topic. Asked by each Fetch without a session."""
        if topic in self.readable and self.epoch == self.authorizer.epoch:
            return True
        allowed = self.may(Operation.READ, _TOPIC, topic)
        if allowed and self._is_settled():
            self.readable.add(topic)
        return allowed

    def _is_settled(self) -> bool:
        """Tell whether nobody has to hear of what was just allowed, and there was room for it.

        Without room nothing at all is remembered.
        """
        return bool(self._decisions) and not self.authorizer.tells_allowed

    def may_replicate(self) -> bool:
        """Tell whether this is a broker, which may read all topics."""
        return self.may(Operation.CLUSTER_ACTION, *CLUSTER)

    def may_describe(self, topic: str) -> bool:
        """Tell whether the client may know that a topic exists; a denial stays quiet."""
        return self.may(Operation.DESCRIBE, _TOPIC, topic, quiet=True)

    def may_list_all_groups(self) -> bool:
        """Tell whether the client may know of all groups; a denial stays quiet."""
        return self.may(Operation.DESCRIBE, *CLUSTER, quiet=True)

    def may_list_group(self, group_id: str) -> bool:
        """Tell whether the client may know that a group exists; a denial stays quiet."""
        return self.may(Operation.DESCRIBE, _GROUP, group_id, quiet=True)

    def may_list_transaction(self, transactional_id: str) -> bool:
        """Tell whether the client may know of a transactional id; a denial stays quiet."""
        return self.may(Operation.DESCRIBE, _TRANSACTION, transactional_id, quiet=True)

    # What the direct ways ask. The ordinary way asks again, and tells who hears of denials.

    def may_write(self, topic: str) -> bool:
        """Tell whether records may be written to a topic; a denial stays quiet."""
        if topic in self._writable and self.epoch == self.authorizer.epoch:
            return True
        allowed = self.may(Operation.WRITE, _TOPIC, topic, quiet=True)
        if allowed and self._is_settled():
            self._writable.add(topic)
        return allowed

    def may_read(self, topic: str) -> bool:
        """Tell whether a topic may be read; a denial stays quiet."""
        return self.may(Operation.READ, _TOPIC, topic, quiet=True)

    def may_read_group(self, group_id: str) -> bool:
        """Tell whether a client may take part in a group; a denial stays quiet."""
        return self.may(Operation.READ, _GROUP, group_id, quiet=True)

    def may_topic(self, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        """Tell whether this may be done to a topic; see ``may``."""
        return self.may(operation, _TOPIC, name, quiet=quiet)

    def may_group(self, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        """Tell whether this may be done to a group; see ``may``."""
        return self.may(operation, _GROUP, name, quiet=quiet)

    def may_transaction(self, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        """Tell whether this may be done to a transactional id; see ``may``."""
        return self.may(operation, _TRANSACTION, name, quiet=quiet)

    def may_cluster(self, operation: Operation, *, quiet: bool = False) -> bool:
        """Tell whether this may be done to the cluster; see ``may``."""
        return self.may(operation, *CLUSTER, quiet=quiet)

    def may_write_markers(self, *, quiet: bool = False) -> bool:
        """Tell whether the client may end others' transactions: ALTER, else CLUSTER_ACTION."""
        return self.may_cluster(Operation.ALTER, quiet=True) or self.may_cluster(
            Operation.CLUSTER_ACTION, quiet=quiet
        )

    def may_delete_topic(self, name: str) -> bool:
        """Tell whether a topic may be deleted: DELETE on the cluster, else on the topic."""
        return self.may_cluster(Operation.DELETE, quiet=True) or self.may_topic(
            Operation.DELETE, name
        )

    def may_create_topic(self, name: str) -> bool:
        """Tell whether a topic may be created: CREATE on the cluster, else on the topic."""
        return self.may_cluster(Operation.CREATE, quiet=True) or self.may_topic(
            Operation.CREATE, name
        )

    def may_some(self, operation: Operation, kind: ResourceType) -> bool:
        """Tell whether this may be done to any resource of a type; remembered, too."""
        if self.epoch != self.authorizer.epoch:
            self._forget()
        asked = (operation, kind, None)
        allowed = self._decisions.get(asked)
        if allowed is None:
            allowed = self.authorizer.may_some(self.principal, self.host, operation, kind)
            if self._left_bytes >= DECISION_BYTES or self._find_room(DECISION_BYTES):
                self._left_bytes -= DECISION_BYTES
                self._decisions[asked] = allowed
        if not allowed or self.authorizer.tells_allowed:
            self._hear(self, operation, Resource(kind, ""), allowed)
        return allowed

    def operations(self, kind: ResourceType, name: str, asked: tuple[Operation, ...]) -> int:
        """Return which of these operations are allowed, as bits (KIP-430); nobody hears of it."""
        return sum(
            1 << operation for operation in asked if self.may(operation, kind, name, quiet=True)
        )


class Accesses:
    """The ``Access`` of each principal and host that is connected."""

    def __init__(self, authorizer: Authorizer, hear: Hear) -> None:
        self._authorizer = authorizer
        self._hear = hear
        self._room = Room()
        self._known: WeakValueDictionary[tuple[Principal, str], Access] = WeakValueDictionary()
        """Invariant: as many as are in use; a connection holds its own."""

    def of(self, principal: Principal, host: str) -> Access:
        """Return what the principal may do from this host."""
        access = self._known.get((principal, host))
        if access is None:
            access = Access(self._authorizer, principal, host, self._hear, self._room)
            self._known[principal, host] = access
        return access
