"""Kafka's error codes, and the exceptions that carry them through the program.

Owns the one table of codes (number, whether a client may retry, a text for people) and the few
exception classes that cross rooms. Knows nothing of messages, logs or sockets. A KafkaError is
raised where the fault is found, fails the Pending of the client that waits, and becomes a code in
the handler of the request's API: only the handler knows which part of its answer the fault
concerns. It is never a value, except in a list of outcomes: one for each of the many things that
were asked. Source: the error code table of Kafka's protocol guide, as Apache Kafka 4.3 serves it.
"""

from enum import IntEnum
from typing import Self, TypeVar


class ErrorCode(IntEnum):
    """The error codes of the Kafka protocol: ``NAME = code, retriable, text``.

    ``retriable`` is what Kafka's own clients assume: True means that the same request may succeed
    later, unchanged. ``text`` is a sentence for people, without values.
    """

    retriable: bool
    text: str

    def __new__(cls, code: int, retriable: bool, text: str) -> Self:
        """Build a member from its row."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.text = text
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "The server met a fault that it has no name for."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The log holds no record at this offset."
    CORRUPT_MESSAGE = 2, True, "The record batch is damaged: its checksum, length or structure."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This node has no such topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not a usable number."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This node does not lead (or replicate) the partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not finished within its time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker cannot be reached."
    REPLICA_NOT_AVAILABLE = 9, True, "This node holds no replica of the partition."
    MESSAGE_TOO_LARGE = 10, False, "The record batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, False, "The sender follows a controller of the past."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The text stored with the offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection ended before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still reading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "There is no coordinator at the moment."
    NOT_COORDINATOR = 16, True, "Another node is the coordinator."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name is illegal, or it may not be used so."
    RECORD_LIST_TOO_LARGE = 18, False, "The record batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Too few in-sync replicas; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, but on too few in-sync replicas."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol with the group."
    INVALID_GROUP_ID = 24, False, "The group id is not usable."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the broker's bounds."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not allowed on this topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not allowed on this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not allowed on this cluster."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is too far from the broker's time."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not enabled here."
    ILLEGAL_SASL_STATE = 34, False, "This request may not come at this step of authentication."
    UNSUPPORTED_VERSION = 35, False, "This version of the request is not served."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not usable."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor does not fit the live nodes."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not usable."
    INVALID_CONFIG = 40, False, "A configuration key or value is not usable."
    NOT_CONTROLLER = 41, True, "Another node is the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The stored record format cannot answer this."
    POLICY_VIOLATION = 44, False, "The request breaks a limit or policy of this cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence numbers have a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was already used."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is old."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The transactional id belongs to another producer id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above the broker's bound."
    CONCURRENT_TRANSACTIONS = 51, True, "Another step of the same transaction is still running."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The marker's coordinator has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not allowed on this transactional id."
    SECURITY_DISABLED = 54, False, "No authorizer is configured."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not tried, since another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk under the log failed."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials were refused."
    UNKNOWN_PRODUCER_ID = 59, False, "The partition remembers nothing of this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal has no right to the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Tokens need a secure connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not allowed on this delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session expects another epoch."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener of this name."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, True, "The request's leader epoch is older than the partition's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The request's leader epoch is newer than the partition's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "This compression cannot be used here."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, True, "A new leader cannot vouch for this offset yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id that came with this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not in sync."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full."
    FENCED_INSTANCE_ID = 82, False, "Another member took over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may lead is alive."
    ELECTION_NOT_NEEDED = 84, True, "The partition already has the wanted leader."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group still reads this topic."
    INVALID_RECORD = 87, False, "A record breaks the rules of its batch or topic."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offsets of an open transaction are not decided yet."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up for now."
    PRODUCER_FENCED = 90, False, "A newer producer uses the same transactional id."
    RESOURCE_NOT_FOUND = 91, False, "There is no such resource."
    DUPLICATE_RESOURCE = 92, False, "The request names one resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential is not acceptable."
    INCONSISTENT_VOTER_SET = 94, False, "Sender and receiver disagree about who votes."
    INVALID_UPDATE_VERSION = 95, False, "The update was made against another version."
    FEATURE_UPDATE_FAILED = 96, False, "The feature levels could not be changed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This node has no topic with this id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live broker already has this node id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker with this node id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic was recreated: its id is another one now."
    INCONSISTENT_CLUSTER_ID = 104, False, "The request was meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "A replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, False, "The change is done and made another replica the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset now lives in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member was fenced: drop all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, False, "Another live member holds this group instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old: heartbeat, then retry."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "This endpoint is of the wrong type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This type of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller with this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription has changed."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry report is too large."
    INVALID_REGISTRATION = 119, False, "The broker's registration was refused."
    TRANSACTION_ABORTABLE = 120, False, "The transaction must be aborted; its id stays usable."
    INVALID_RECORD_STATE = 121, False, "The record can no longer be acknowledged by this member."
    SHARE_SESSION_NOT_FOUND = 122, True, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session expects another epoch."
    FENCED_STATE_EPOCH = 124, False, "The share group's state has a newer epoch."
    INVALID_VOTER_KEY = 125, False, "The voter's key is not the receiver's."
    DUPLICATE_VOTER = 126, False, "The voter is already in the set."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not usable."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is too old: bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not usable."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The streams topology's epoch is not usable."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The streams group has a newer topology."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "No more share sessions are allowed."


ErrorT = TypeVar("ErrorT", bound=BaseException)


def as_value(error: ErrorT) -> ErrorT:
    """Drop traceback, cause and context of an error and return it, to be kept as a value.

    A traceback keeps the local variables of its frames alive, such as open files or the 64 MiB that
    a batch unpacked to. They often include the error itself, and such a cycle lives until the
    garbage collector runs.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _rebuilt(kind: "type[OttlaError]", args: tuple[object, ...]) -> "OttlaError":
    """Return an error that came from another process; its attributes follow."""
    return kind.__new__(kind, *args)


class OttlaError(Exception):
    """The root of every error this program raises on purpose.

    It goes to another process whole (``multiprocessing``, Spark): whatever a subclass asks for.
    """

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own calls the class with ``args``, which are not what a subclass takes.
        return _rebuilt, (type(self), self.args), dict(self.__dict__)


class KafkaError(OttlaError):
    """A request, or a part of one, that is answered with an error code.

    ``why`` adds the values (topic-partition, offset, expected, found); empty: the code says it all.
    """

    def __init__(self, code: ErrorCode, why: str = "") -> None:
        super().__init__(code, why)
        self.code = code
        self.why = why

    def __str__(self) -> str:
        return f"{self.code.name} ({self.code.value}): {self.why or self.code.text}"

    def as_value(self) -> Self:
        """Drop traceback, cause and context and return this error: see ``as_value``."""
        return as_value(self)


class RecordError:
    """One record of a refused batch: its index in the batch, and what is wrong with it."""

    __slots__ = ("index", "why")

    def __init__(self, index: int, why: str) -> None:
        self.index = index
        self.why = why


class RecordsRejected(KafkaError):
    """A batch that is refused because of the records that ``records`` lists (KIP-467)."""

    def __init__(self, code: ErrorCode, why: str, records: tuple[RecordError, ...]) -> None:
        super().__init__(code, why)
        self.records = records


class CorruptFile(OttlaError):
    """A file of ours that is not as written. ``position``: the first bad byte; None: unknown."""

    def __init__(self, path: str, why: str, position: int | None = None) -> None:
        super().__init__(path, why, position)
        self.path = path
        self.why = why
        self.position = position

    def __str__(self) -> str:
        where = "" if self.position is None else f" at byte {self.position}"
        return f"{self.path}{where}: {self.why}"


class InvariantBroken(OttlaError):
    """A fault of our own: something that must always hold does not."""


class MalformedMessage(OttlaError):
    """Bytes from a peer are not the message they claim to be, so the rest cannot be read either."""


class CloseConnection(OttlaError):
    """The answer to this request is to close the connection (an acks=0 Produce that failed).

    If a Pending fails with it, ``last_answer`` is sent before the connection is closed.
    """

    def __init__(self, why: str = "", last_answer: tuple[bytes, ...] = ()) -> None:
        super().__init__(why)
        self.last_answer = last_answer
        """A framed answer in pieces; empty: the client is told nothing."""
