"""A configuration: an immutable view of values, each with the layer it comes from.

Owns the order in which layers win. Knows nothing of files, stores or the wire: whoever reads those
hands in layers of texts. A change makes a new Config; holders of the old one see no half of it.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar, cast

from ottla.config.option import InvalidConfig, Option, Source, Table, value_text

T = TypeVar("T")


class Layer(NamedTuple):
    """Texts by key, and where they come from."""

    source: Source
    texts: Mapping[str, str]


class Setting(NamedTuple):
    """One layer's say about an option, as DescribeConfigs lists it among the synonyms."""

    key: str
    text: str
    source: Source


class Config:
    """Typed values: ``config[OPTION]``. Layers are given strongest first.

    A key of ``layers`` that is not in ``table`` and a text that is no value of its type raise
    InvalidConfig here, so a Config that exists is valid. ``beneath`` is the broker's configuration
    when this is a topic's: its options give the defaults.
    """

    __slots__ = ("_beneath", "_layers", "_values", "table")

    def __init__(self, table: Table, *layers: Layer, beneath: "Config | None" = None) -> None:
        self.table = table
        self._layers = layers
        self._beneath = beneath
        self._values: dict[str, object] = {}
        for layer in reversed(layers):
            for key, text in layer.texts.items():
                self._values[key] = table[key].parse(text)
        if beneath is not None:
            self._inherit(beneath)

    def __getitem__(self, option: Option[T]) -> T:
        return cast("T", self._values.get(option.key, option.default))

    def source(self, option: Option[object]) -> Source:
        """Return the layer that the value in force comes from."""
        settings = self.settings(option)
        return settings[0].source if settings else Source.DEFAULT

    def given(self) -> Mapping[str, str]:
        """Return the texts that were set, by key, the strongest of each; no defaults."""
        given: dict[str, str] = {}
        for layer in reversed(self._layers):
            given.update(layer.texts)
        return given

    def is_given(self, option: Option[object]) -> bool:
        """Tell whether the option was set here, as opposed to inherited or defaulted."""
        return any(option.key in layer.texts for layer in self._layers)

    def text(self, option: Option[object]) -> str | None:
        """Return the value in force as DescribeConfigs spells it; None for no value."""
        value = self[option]
        return None if value is None else value_text(value)

    def over(self, *layers: Layer) -> "Config":
        """Return this configuration with ``layers`` above its own."""
        return Config(self.table, *layers, *self._layers, beneath=self._beneath)

    def settings(self, option: Option[object]) -> tuple[Setting, ...]:
        """Return every layer's say, the one in force first, the default last if there is one."""
        return tuple(self._settings(option))

    def _settings(self, option: Option[object]) -> Iterator[Setting]:
        for layer in self._layers:
            if option.key in layer.texts:
                value = option.parse(layer.texts[option.key])
                yield Setting(option.key, value_text(value), layer.source)
        if self._beneath is None:
            if option.default is not None:
                yield Setting(option.key, value_text(option.default), Source.DEFAULT)
            return
        for rank, (followed, _) in enumerate(option.follows):
            for setting in self._beneath.settings(followed):
                if rank == 0 or setting.source is not Source.DEFAULT:  # as Kafka lists them
                    yield setting

    def _inherit(self, beneath: "Config") -> None:
        """Fill in what the broker's options say: the first that has a value, in this unit."""
        for option in self.table:
            if option.key in self._values:
                continue
            for followed, factor in option.follows:
                value = beneath[followed]
                if isinstance(value, int) and factor != 1 and value >= 0:  # -1 has no unit
                    value *= factor
                if value is not None:
                    self._values[option.key] = value
                    break


def readable(table: Table, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that are values of options in ``table``; another version knew the others."""
    usable: dict[str, str] = {}
    for key, text in texts.items():
        with suppress(InvalidConfig):
            table[key].parse(text)
            usable[key] = text
    return usable
