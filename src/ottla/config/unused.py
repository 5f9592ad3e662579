"""Kafka's broker options that have no meaning here, so that a file for Kafka can be read.

Owns which of them are ignored with a note, and which are refused because somebody who sets them
relies on them: a node that ignored ``ssl.*`` would send secrets unencrypted.
Source: Kafka's broker configuration reference.
"""

from collections.abc import Mapping, Sequence

_NO_THREADS = "a node is one event loop"
NO_KRAFT = "there is no KRaft controller; the metadata is in the node's own store"
_KERNEL = "the kernel sizes socket buffers by itself"
_NO_JVM = "there is no JVM"
_OF_NODES = "nodes ask one another by a listener and a login of their own"
_PROTOCOL_OF_NODES = "security.inter.broker.protocol"
_LISTENER_OF_NODES = "inter.broker.listener.name"
_ENCRYPTED = ("SSL", "SASL_SSL")
_NOT_YET = "what it tunes is not served by this version"

PASSED_OVER = {
    "background.threads": _NO_THREADS,
    "num.network.threads": _NO_THREADS,
    "num.io.threads": _NO_THREADS,
    "num.recovery.threads.per.data.dir": _NO_THREADS,
    "num.replica.fetchers": _NO_THREADS,
    "num.replica.alter.log.dirs.threads": _NO_THREADS,
    "socket.send.buffer.bytes": _KERNEL,
    "socket.receive.buffer.bytes": _KERNEL,
    "queued.max.requests": "queued.max.request.bytes bounds the queue",
    "process.roles": NO_KRAFT,
    "controller.": NO_KRAFT,
    "metadata.": NO_KRAFT,
    _PROTOCOL_OF_NODES: _OF_NODES,
    _LISTENER_OF_NODES: _OF_NODES,
    "sasl.mechanism.inter.broker.protocol": _OF_NODES,
    "broker.heartbeat.interval.ms": NO_KRAFT,
    "initial.broker.registration.timeout.ms": NO_KRAFT,
    "early.start.listeners": NO_KRAFT,
    "metric.reporters": _NO_JVM,
    "metrics.": _NO_JVM,
    "kafka.metrics.": _NO_JVM,
    "confluent.": "it belongs to another distribution",
    "log.cleaner.threads": "logs are compacted one after the other",
    "log.local.retention.": _NOT_YET,
    "log.dir.failure.timeout.ms": _NOT_YET,
    "log.initial.task.delay.ms": _NOT_YET,
    "replica.": _NOT_YET,
    "replication.quota.": _NOT_YET,
    "alter.log.dirs.replication.quota.": _NOT_YET,
    "leader.imbalance.": _NOT_YET,
    "unclean.leader.election.interval.ms": _NOT_YET,
    "controlled.shutdown.": _NOT_YET,
    "group.": _NOT_YET,
    "share.": _NOT_YET,
    "offsets.": _NOT_YET,
    "transaction.": _NOT_YET,
    "producer.": _NOT_YET,
    "fetch.purgatory.": _NOT_YET,
    "delete.records.purgatory.": _NOT_YET,
    "add.partitions.to.txn.retry.backoff.ms": "the end of a transaction is waited for, not polled",
    "request.timeout.ms": _NOT_YET,
    "socket.connection.setup.": _NOT_YET,
    "telemetry.": _NOT_YET,
    "delegation.token.": _NOT_YET,
    "remote.log.": _NOT_YET,
    "remote.fetch.": _NOT_YET,
    "remote.list.": _NOT_YET,
    "follower.fetch.last.tiered.offset.enable": _NOT_YET,
}
"""Why each key is ignored. A key that ends with a dot stands for all keys that begin with it."""

RELIED_ON = {
    "listener.name.": "this option of a listener is not served by this version",
    "ssl.": "this part of TLS is not served by this version",
    "sasl.": "this part of SASL is not served by this version",
    "authorizer.": "there is no such option of an authorizer",
    "principal.builder.class": "Java classes cannot be loaded",
    "security.": "there is no such option of security",
    "client.quota.callback.class": "Java classes cannot be loaded",
    "create.topic.policy.class.name": "Java classes cannot be loaded",
    "alter.config.policy.class.name": "Java classes cannot be loaded",
    "config.providers": "values cannot come from elsewhere",
    "remote.log.storage.system.enable": "tiered storage is not served by this version",
}
"""Why a configuration with such a key is refused. Keys that end with a dot are prefixes."""

RENAMED = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Old names that Kafka still accepts, and their new names."""


def why_passed_over(key: str) -> str | None:
    """Return why ``key`` may be ignored; None when it may not."""
    return _lookup(PASSED_OVER, key)


def why_refused(key: str) -> str | None:
    """Return why a configuration with ``key`` is refused; None when it is not."""
    return None if key in PASSED_OVER else _lookup(RELIED_ON, key)


def why_no_listener_of_nodes(
    texts: Mapping[str, str], listeners: Sequence[str]
) -> tuple[str, str] | None:
    """Return the key that names a listener which there is not, and why; None: all is well.

    ``texts``: what was given, also what is passed over. ``listeners``: the names of those that
    there are. What is named is passed over, but who names nothing has written something else than
    he means; Kafka does not start then.
    """
    given = [key for key in (_LISTENER_OF_NODES, _PROTOCOL_OF_NODES) if key in texts]
    if len(given) == 2:
        return given[0], f"only one of it and {given[1]} can be set"
    for key in given:
        if texts[key].strip().upper() not in listeners:
            return key, f"there is no listener {texts[key]}; listeners has {', '.join(listeners)}"
    return None


def key_of_encrypted_nodes(texts: Mapping[str, str]) -> str | None:
    """Return the key by which nodes were to ask one another with TLS; None: they need not.

    ``texts``: what was given, also what is passed over. Between hosts that must not be ignored.
    """
    key = _PROTOCOL_OF_NODES
    if texts.get(key, "").strip().upper() in _ENCRYPTED:
        return key
    key = _LISTENER_OF_NODES
    name = texts.get(key, "").strip().upper()
    protocols = {name: name}
    for each in texts.get("listener.security.protocol.map", "").split(","):
        listener, _, protocol = each.partition(":")
        protocols[listener.strip().upper()] = protocol.strip().upper()
    return key if protocols[name] in _ENCRYPTED else None


def _lookup(reasons: dict[str, str], key: str) -> str | None:
    if key in reasons:
        return reasons[key]
    for prefix, why in reasons.items():
        if prefix.endswith(".") and key.startswith(prefix):
            return why
    return None
