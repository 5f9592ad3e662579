"""Options and configurations.

A node's options are in ``broker``, ``log`` and ``coordinator``, a topic's in ``topic``, a group's
in ``group``.
"""

from ottla.config.config import Config, Layer
from ottla.config.option import InvalidConfig, Option, Scope, Source, Table, ValueType

__all__ = ["Config", "Layer", "Option", "Table", "Scope", "Source", "ValueType", "InvalidConfig"]
