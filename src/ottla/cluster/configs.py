"""Changes configs of topics, brokers and groups: merges, checks, commits, waits for the image.

Only this module changes configs of existing things. ``merge`` is pure: it makes the new texts of
the old ones and a request. The commit is guarded by the revision of the old texts; if somebody else
was faster, the change is merged and checked again. Source: KIP-226, KIP-339; the answers of a live
Kafka 4.3 to good and bad requests.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.cluster.arriving import Arriving
from ottla.cluster.topics import topic_name_error
from ottla.config.broker import BROKER_TABLE
from ottla.config.config import Config, Layer, readable
from ottla.config.group import GROUP_TABLE, checked_group_config
from ottla.config.option import LIST, InvalidConfig, Source
from ottla.config.topic import TOPIC_TABLE
from ottla.config.unused import why_refused
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT32_MAX, NodeId
from ottla.metadata.answering import store_answers
from ottla.metadata.image import ImageFollower, MetadataImage
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.store import (
    ABSENT,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Delete,
    Guard,
    MetadataStore,
    Op,
    Put,
)
from ottla.metadata.values import decode_config, encode_config
from ottla.pending import Pending, pending_of

logger = logging.getLogger(__name__)

EACH_TURN = 16
"""How many resources of a request are begun in one turn of the loop: 2 ms at most."""
CHANGES_MAX = 1000
"""The most configs that one alteration may carry: several times the number of options."""
KEPT_MAX = 1000
"""The most that a resource keeps, those that mean nothing here included: each costs whoever asks
for the configs of a broker, whether he asks for it or not."""

_NEW_CERTIFICATES = (
    "; to show new certificates, replace the files that ssl.keystore.location names: the broker"
    " looks at them every ottla.ssl.reload.interval.ms"
)
_NUMBER = re.compile(r"[+-]?\d{1,10}")
CLUSTER_DEFAULT = ""
"""The name of the broker config that applies to every broker."""


class ResourceType(IntEnum):
    """The types of resources that have configs here; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Operation(IntEnum):
    """What an alteration does to one key; the numbers are the protocol's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(Operation)


class ConfigChange(NamedTuple):
    """One key of a request, unchecked: ``operation`` may be no Operation."""

    key: str
    operation: int
    value: str | None


class Alteration(NamedTuple):
    """One resource of a request, unchecked: ``resource_type`` may be no ResourceType."""

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]
    replaces: bool
    """True: configs that are not among the changes are deleted (AlterConfigs)."""


class _Target(NamedTuple):
    """The config that an alteration changes."""

    config_type: ConfigType
    name: str


class Configs:
    """Serves the admin requests that change configs."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        keys: Keys,
        follower: ImageFollower,
        node_id: NodeId,
        broker_config: Callable[[], Config],
        check_topic_config: Callable[[Mapping[str, str]], Config],
        groups_max: int,
        warn: Callable[[str], None] = logger.warning,
    ) -> None:
        """Build it; ``check_topic_config`` raises InvalidConfig for configs that no topic may have.

        ``groups_max``: how many groups may have configs. ``warn`` logs what clients may bring about
        as often as they like.
        """
        self._warn = warn
        self._groups_max = groups_max
        self._arriving = Arriving()
        self._store = store
        self._keys = keys
        self._follower = follower
        self._node_id = node_id
        self._broker_config = broker_config
        self._check_topic_config = check_topic_config

    def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool = False
    ) -> Pending[list[KafkaError | None]]:
        """Alter configs; the Pending gets one outcome per alteration, in order: None is success."""
        return pending_of(self._alter_each(alterations, validate_only))

    async def _alter_each(
        self, alterations: Sequence[Alteration], validate_only: bool
    ) -> list[KafkaError | None]:
        outcomes: list[KafkaError | None] = []
        for alteration in alterations:
            if len(outcomes) % EACH_TURN == EACH_TURN - 1:
                await asyncio.sleep(0)  # Resources that are refused at once never wait otherwise.
            try:
                with store_answers():
                    await self._alter(alteration, validate_only)
            except KafkaError as error:
                outcomes.append(error.as_value())  # Its traceback would refer to the list itself.
            else:
                outcomes.append(None)
        return outcomes

    async def _alter(self, alteration: Alteration, validate_only: bool) -> None:
        target = self._target(alteration)
        _check_changes(alteration.changes)
        await self._follower.mirror.contests.won(
            f"the configs of {target.config_type.value} {target.name!r}",
            lambda: self._attempt(alteration, target, validate_only),
        )

    async def _attempt(self, alteration: Alteration, target: _Target, validate_only: bool) -> None:
        """Merge with the current texts and commit. Raises GuardFailed if these changed meanwhile.

        Returns when this node's image has the change. Raises KafkaError for a bad request.
        """
        key = self._keys.config(target.config_type, target.name)
        guards: list[Guard] = []
        topic = None
        if target.config_type is ConfigType.TOPIC:
            topic = await self._store.get(self._keys.topic(target.name))
        entry = await self._store.get(key)
        given = {} if entry is None else decode_config(entry.value)
        if target.config_type is ConfigType.TOPIC:
            texts = self._plan_topic(alteration, given)
            if topic is None:
                why = f"The topic '{target.name}' does not exist."
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
            guards.append(Guard(topic.key, mod_rev=topic.mod_rev))
        elif target.config_type is ConfigType.GROUP:
            texts = self._plan_group(alteration, given)
            if entry is None and texts:
                self._check_room(target.name)
        else:
            texts = self._plan_broker(alteration, given)
        value = _encoded(texts, given)
        if validate_only:
            return
        if texts == given:  # Another node may have made it so, unheard of here.
            await self._follower.catch_up()
            return
        guards.append(Guard(key, mod_rev=ABSENT if entry is None else entry.mod_rev))
        op: Op = Put(key, value) if texts else Delete(key)
        is_new = entry is None and target.config_type is ConfigType.GROUP
        arrived = self._arriving.begin(target.name) if is_new else None
        try:
            await self._follower.reached(await self._store.commit(guards, [op]))
        finally:
            if arrived is not None:
                arrived()

    def _target(self, alteration: Alteration) -> _Target:
        name = alteration.resource_name
        if alteration.resource_type == ResourceType.TOPIC:
            if not name:
                why = "Default topic resources are not allowed."
                raise KafkaError(ErrorCode.INVALID_REQUEST, why)
            problem = topic_name_error(name)
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            return _Target(ConfigType.TOPIC, name)
        if alteration.resource_type == ResourceType.BROKER:
            if name:
                self._check_is_me(name)
            return _Target(ConfigType.BROKER, str(self._node_id) if name else CLUSTER_DEFAULT)
        if alteration.resource_type == ResourceType.GROUP:
            return self._target_group(name)
        why = f"Unknown resource type {alteration.resource_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)

    def _target_group(self, name: str) -> _Target:
        if not name:
            why = "Default group resources are not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        key = self._keys.config(ConfigType.GROUP, name)
        if len(key) > KEY_BYTES_MAX:
            why = f"a group's name that takes {len(key)} bytes as a key; at most {KEY_BYTES_MAX}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        return _Target(ConfigType.GROUP, name)

    def _check_is_me(self, name: str) -> None:
        number = broker_number(name)
        if number is None:
            why = f"Node id must be an integer, but it is: {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        if number != self._node_id:
            why = f"Unexpected broker id, expected {self._node_id}, but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)

    def _check_room(self, name: str) -> None:
        """Raise KafkaError if no further group may have configs."""
        count = self._follower.image.configured_count(ConfigType.GROUP) + len(self._arriving)
        if count >= self._groups_max and name not in self._arriving:
            why = f"{count} groups have configs; ottla.group.configs.max is {self._groups_max}"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, why)

    def _plan_topic(self, alteration: Alteration, given: Mapping[str, str]) -> dict[str, str]:
        defaults = self._check_topic_config({})
        for change in _list_changes(alteration.changes):
            if change.key not in TOPIC_TABLE or TOPIC_TABLE[change.key].type is not LIST:
                name = Operation(change.operation).name
                why = f"Can't {name} to key {change.key} because its type is not LIST."
                raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        texts = merge(given, alteration, defaults)
        try:
            self._check_topic_config(texts)
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return texts

    def _plan_group(self, alteration: Alteration, given: Mapping[str, str]) -> dict[str, str]:
        """Return the group's new texts; the group need not exist."""
        for change in _list_changes(alteration.changes):
            name = Operation(change.operation).name
            why = f"Can't {name} to key {change.key} because its type is not LIST."
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        broker = self._broker_config()
        texts = merge(given, alteration, broker)
        known = {key: text for key, text in texts.items() if key in GROUP_TABLE or key not in given}
        try:
            checked_group_config(known, broker)
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return texts

    def _plan_broker(self, alteration: Alteration, given: Mapping[str, str]) -> dict[str, str]:
        _check_broker_changes(alteration.changes)
        texts = merge(given, alteration, self._broker_config())
        known = {key: text for key, text in texts.items() if key in BROKER_TABLE}
        try:
            Config(BROKER_TABLE, Layer(Source.DYNAMIC_BROKER, known))
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        meaningless = sorted(texts.keys() - known.keys() - given.keys())
        if meaningless:
            named = f"such as {meaningless[0][:100]!r}"
            self._warn(f"broker configs are kept that mean nothing here, {named}")
        return texts


def _encoded(texts: Mapping[str, str], given: Mapping[str, str]) -> bytes:
    """Return what is kept of ``texts``, which ``given`` become. Raises KafkaError: too much."""
    if len(texts) > KEPT_MAX and len(texts) > len(given):
        why = f"{len(texts)} configs of one resource; at most {KEPT_MAX} can be kept"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    value = encode_config(texts)
    if len(value) > VALUE_BYTES_MAX:
        why = f"{len(value)} bytes of configs; at most {VALUE_BYTES_MAX} can be kept"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    return value


def broker_number(name: str) -> int | None:
    """Return which broker a resource's name stands for; None: it is no number, as Java reads them.

    Use: whoever decides by such a name, so that all take it for the same broker's: "01" is 1.
    """
    if _NUMBER.fullmatch(name) and abs(number := int(name)) <= INT32_MAX:
        return number
    return None


def merge(given: Mapping[str, str], alteration: Alteration, in_force: Config) -> dict[str, str]:
    """Return the texts that result when ``alteration`` is applied to the texts ``given``.

    APPEND and SUBTRACT of a list that is not among ``given`` start from its value in ``in_force``.
    The changes must be checked: known operations, with values, and lists where lists must be.
    """
    texts = {} if alteration.replaces else dict(given)
    for key, operation, value in alteration.changes:
        if operation == Operation.DELETE:
            texts.pop(key, None)
            continue
        assert value is not None, "a change without a value is refused"
        if operation == Operation.SET:
            texts[key] = value
            continue
        present = texts.get(key)
        if present is None:
            present = in_force.text(in_force.table[key]) or ""
        # Dicts, because a list from a client may be long.
        parts = dict.fromkeys(_parts(present) if present else ())
        named = dict.fromkeys(_parts(value))
        if operation == Operation.APPEND:
            parts |= named
        else:
            parts = {part: None for part in parts if part not in named}
        texts[key] = ",".join(parts)
    return texts


def broker_config_in_force(static: Config, image: MetadataImage, node_id: NodeId) -> Config:
    """Return a broker's configuration: its own dynamic texts above the cluster's above ``static``.

    Stored texts that this version cannot read are left out.
    """
    return static.over(
        Layer(Source.DYNAMIC_BROKER, dynamic_texts(image.config(ConfigType.BROKER, str(node_id)))),
        Layer(
            Source.DYNAMIC_DEFAULT_BROKER,
            dynamic_texts(image.config(ConfigType.BROKER, CLUSTER_DEFAULT)),
        ),
    )


def dynamic_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of options that this version knows and that may change dynamically."""
    usable = readable(BROKER_TABLE, texts)
    return {key: text for key, text in usable.items() if BROKER_TABLE[key].dynamic}


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _check_changes(changes: Sequence[ConfigChange]) -> None:
    """Raise KafkaError for changes that are wrong for every type of resource."""
    if len(changes) > CHANGES_MAX:
        why = f"More than {CHANGES_MAX} configs of one resource."
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    if len({change.key for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without = [
        change.key
        for change in changes
        if change.value is None and change.operation != Operation.DELETE
    ]
    if without:
        why = f"Null value not supported for : {', '.join(without)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    for change in changes:
        if change.operation not in _OPERATIONS:
            why = f"Unknown operations type {change.operation}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _check_broker_changes(changes: Sequence[ConfigChange]) -> None:
    """Raise KafkaError for options that cannot change while a node runs, or are refused here."""
    for change in _list_changes(changes):
        if change.key not in BROKER_TABLE:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.key}")
        if BROKER_TABLE[change.key].type is not LIST:
            name = Operation(change.operation).name.lower()
            why = f"Config value {name} is not allowed for config key: {change.key}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
    wanted = [change for change in changes if change.operation != Operation.DELETE]
    fixed = sorted(
        change.key
        for change in wanted
        if change.key in BROKER_TABLE and not BROKER_TABLE[change.key].dynamic
    )
    if fixed:
        why = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        if any(key.startswith(("ssl.", "listener.name.")) and "ssl." in key for key in fixed):
            why += _NEW_CERTIFICATES
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    for change in wanted:
        refusal = None if change.key in BROKER_TABLE else why_refused(change.key)
        if refusal is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.key}: {refusal}")


def _list_changes(changes: Sequence[ConfigChange]) -> list[ConfigChange]:
    return [
        change for change in changes if change.operation in (Operation.APPEND, Operation.SUBTRACT)
    ]
