"""Options and configurations. The tables are ``ottla.config.broker`` and ``ottla.config.topic``."""

from ottla.config.config import Config, Layer
from ottla.config.option import InvalidConfig, Option, Scope, Source, Table, ValueType

__all__ = ["Config", "Layer", "Option", "Table", "Scope", "Source", "ValueType", "InvalidConfig"]
