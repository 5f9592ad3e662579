"""What a request is about, and the answer that refuses it: for any API, by the message tables.

``places_of`` and ``groups_of`` walk a decoded request. ``refuse`` makes an answer that says of each
thing that the request names that it failed: arrays of the answer are laid beside those of the
request, in their order, and fields of equal meaning are copied. ``spoil`` puts a code into an
answer that is there. No input or output; not for hot paths.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ottla.ids import TopicId
from ottla.protocol.apis import ApiKey
from ottla.protocol.fields import Field, Required, Wire
from ottla.protocol.schema import Message, Struct

TOPIC_FIELDS = ("name", "topic", "topic_name", "resource_name")
PARTITION_FIELDS = ("partition_index", "partition", "index", "partition_id")
GROUP_FIELDS = frozenset({"group_id", "key", "coordinator_keys", "groups_names"})
ALIASES = (TOPIC_FIELDS, PARTITION_FIELDS, ("group_id", "group", "key"))
TRANSACTIONAL_FIELDS = ("transactional_id", "v3_and_below_transactional_id")
NOT_IN_TRANSACTION = frozenset({ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_TRANSACTIONS})
"""These name a transactional id, and do nothing in its transaction."""
NO_TOPICS = frozenset({"protocols", "configs"})
"""Arrays whose names are no topics'."""
CODES = ("error_code", "partition_error_code")
"""Where an answer tells of what became of a thing; AddPartitionsToTxn has a name of its own."""

NameOf = Callable[[TopicId], str | None]
"""Returns the name of the topic with an id; None: there is none."""


def places_of(request: Message, version: int, name_of: NameOf) -> frozenset[tuple[str, int | None]]:
    """Return the topics that a request names, each with None, and the partitions."""
    return frozenset(_places(request, version, name_of))


def _places(part: Struct, version: int, name_of: NameOf) -> Iterator[tuple[str, int | None]]:
    for name, items in _arrays(part, version):
        if name in NO_TOPICS:
            continue
        for item in items:
            if isinstance(item, str) and name == "topic_names":
                yield item, None
            if not isinstance(item, Struct):
                continue
            topic = _topic_of(item, name_of)
            if topic is None:
                yield from _places(item, version, name_of)
                continue
            yield topic, None
            for _, inner in _arrays(item, version):
                for one in inner:
                    number = one if isinstance(one, int) else _first(one, PARTITION_FIELDS)
                    if isinstance(number, int):
                        yield topic, number


def groups_of(part: Struct) -> frozenset[str]:
    """Return the groups that a request names."""
    return frozenset(_groups(part))


def _groups(part: Struct) -> Iterator[str]:
    for name in part.FIELDS:
        value = getattr(part, name)
        if name in GROUP_FIELDS:
            yield from (value if isinstance(value, list) else [value] if value else [])
        elif name == "groups" and isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from _groups(item)
                elif isinstance(item, str):
                    yield item


def transactional_ids_of(request: Message) -> frozenset[str]:
    """Return the transactional ids in whose transactions a request does something."""
    if request.API_KEY in NOT_IN_TRANSACTION:
        return frozenset()
    found = {getattr(request, name, None) for name in TRANSACTIONAL_FIELDS}
    found |= {each.transactional_id for each in getattr(request, "transactions", ())}
    return frozenset(each for each in found if each)


def refuse(request: Message, answer: type[Message], version: int, code: int) -> Message:
    """Return the answer that refuses all that the request asks with ``code``."""
    refused = _refused(request, answer, version, code)
    assert isinstance(refused, Message), "made of a Message's class"
    return refused


def spoil(part: Struct, version: int, code: int, *, deep: bool = True) -> bool:
    """Put ``code`` into an answer, where it tells of single things if it does; else at the top.

    ``deep`` False: into the uppermost things only. Returns whether there was a place for it.
    """
    inner = False
    if deep or not _has_code(part, version):
        for _, items in _arrays(part, version):
            for item in items:
                if isinstance(item, Struct):
                    inner |= spoil(item, version, code, deep=deep)
    if inner:
        return True
    name = _code_field(part, version)
    if name is not None:
        setattr(part, name, code)
        if "records" in part.FIELDS:
            part.records = b""  # type: ignore[attr-defined]
        return True
    return False


def _refused(request: object, table: type[Struct], version: int, code: int) -> Struct:
    values: dict[str, Any] = {}
    items_of = iter(_arrays(request, version) if isinstance(request, Struct) else ())
    is_told = False
    for name, field in table.FIELDS.items():
        if version not in field.versions:
            values[name] = _nothing(field, version)
        elif field.wire is Wire.ARRAY and _tells(field.of, version):
            element: Any = field.of
            _, items = next(items_of, ("", []))
            values[name] = [_refused(item, element, version, code) for item in items]
            is_told |= bool(items)
        else:
            values[name] = _copied(request, name, field, version)
    for name in CODES:
        if name in values:
            values[name] = 0 if is_told else code
    return table(**values)


def _copied(request: object, name: str, field: Field, version: int) -> object:
    """Return the request's value of this meaning, else a default."""
    if not isinstance(request, Struct):  # A bare name or number: it goes into the first such field.
        is_text = field.wire is Wire.STRING and isinstance(request, str)
        is_number = field.wire is Wire.INT32 and isinstance(request, int)
        is_id = any(name in alias for alias in ALIASES)
        return request if (is_text or is_number) and is_id else _nothing(field, version)
    if field.wire in (Wire.ARRAY, Wire.STRUCT, Wire.RECORDS):
        return _nothing(field, version)
    for names in ((name,), *(alias for alias in ALIASES if name in alias)):
        for one in names:
            if one in request.FIELDS and request.FIELDS[one].wire is field.wire:
                return getattr(request, one)
    return _nothing(field, version)


def _nothing(field: Field, version: int) -> object:
    """Return what stands for no value of a field."""
    if field.wire is Wire.RECORDS:
        return b""  # As Kafka answers: librdkafka takes no null.
    if field.default is not Required.REQUIRED:
        return list(field.default) if isinstance(field.default, list) else field.default
    if version in field.nullable or version not in field.versions:
        return None
    if field.wire is Wire.STRUCT:
        table: Any = field.of
        return _refused(None, table, version, 0)
    return _EMPTY.get(field.wire, 0)


_EMPTY: dict[Wire, object] = {
    Wire.STRING: "",
    Wire.BYTES: b"",
    Wire.BOOLEAN: False,
    Wire.INT64: -1,
    Wire.ARRAY: [],
    Wire.UUID: bytes(16),
}


def _arrays(part: Struct, version: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the arrays of a message in this version: name and items."""
    for name, field in part.FIELDS.items():
        if field.wire is Wire.ARRAY and version in field.versions:
            yield name, getattr(part, name) or []


def _tells(element: object, version: int) -> bool:
    """Whether elements of an array carry error codes, themselves or further in."""
    if not (isinstance(element, type) and issubclass(element, Struct)):
        return False
    return any(
        version in field.versions
        and (name in CODES or (field.wire is Wire.ARRAY and _tells(field.of, version)))
        for name, field in element.FIELDS.items()
    )


def _has_code(part: Struct, version: int) -> bool:
    return _code_field(part, version) is not None


def _code_field(part: Struct, version: int) -> str | None:
    """Return the name of the field of ``part`` that carries its error code; None: none does."""
    for name in CODES:
        field = part.FIELDS.get(name)
        if field is not None and version in field.versions:
            return name
    return None


def _topic_of(item: Struct, name_of: NameOf) -> str | None:
    name = _first(item, TOPIC_FIELDS)
    if isinstance(name, str) and name:
        return name
    topic_id = getattr(item, "topic_id", None)
    return name_of(TopicId(topic_id)) if isinstance(topic_id, bytes) else None


def _first(item: object, names: tuple[str, ...]) -> object:
    """Return the first of these fields that an item has; None: it has none of them."""
    for name in names:
        if isinstance(item, Struct) and name in item.FIELDS:
            return getattr(item, name)
    return None
