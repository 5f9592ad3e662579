"""What tests need of a broker: ``Broker``, ``Cluster``, ``SchemaRegistry``, and a pytest plugin.

Nothing is imported before it is asked for: pytest loads the plugin in every run.
"""

from importlib import import_module

_PLACES = {
    "Broker": "ottla.testing.broker",
    "Cluster": "ottla.testing.cluster",
    "KafkaContainer": "ottla.testing.container",
    "Received": "ottla.testing.cluster",
    "SchemaRegistry": "ottla.testing.schema_registry",
    "Written": "ottla.testing.cluster",
}

__all__ = ["Broker", "Cluster", "KafkaContainer", "Received", "SchemaRegistry", "Written"]


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(place), name)
