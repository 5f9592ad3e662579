"""Ottla: a Kafka-compatible streaming log. Importing it is cheap: it imports no other module.

The names below are the client library; each is imported when it is first used. All else in this
package is private.
"""

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "BadArgument",
    "Client",
    "ClientClosed",
    "ClientError",
    "Fenced",
    "GroupMoved",
    "Hooks",
    "NotAllowed",
    "Record",
    "Refused",
    "TimedOut",
    "TopicPartition",
    "Undecodable",
    "Unreachable",
    "Written",
]

_PLACES = {
    "AsyncClient": "ottla.client.library.client",
    "Client": "ottla.client.library.client",
    "Hooks": "ottla.client.library.records",
    "Record": "ottla.client.library.records",
    "Written": "ottla.client.library.records",
    "TopicPartition": "ottla.ids",
    "BadArgument": "ottla.client.library.failures",
    "ClientClosed": "ottla.client.library.failures",
    "ClientError": "ottla.client.library.failures",
    "Fenced": "ottla.client.library.failures",
    "GroupMoved": "ottla.client.library.failures",
    "NotAllowed": "ottla.client.library.failures",
    "Refused": "ottla.client.library.failures",
    "TimedOut": "ottla.client.library.failures",
    "Undecodable": "ottla.client.library.failures",
    "Unreachable": "ottla.client.library.failures",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module  # noqa: PLC0415 - nobody pays who asks for nothing

    return getattr(import_module(place), name)
