"""A configuration: an immutable view of values, each with the layer it comes from.

Owns the order in which layers win. Knows nothing of files, stores or the wire; its callers read
those and pass layers of texts. A change makes a new Config, so nobody sees half of a change.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile
from typing import NamedTuple, TypeVar, cast

from ottla.config.option import InvalidConfig, Option, Source, Table, value_text

T = TypeVar("T")


class Layer(NamedTuple):
    """Texts by key that were set in one place, and that place."""

    source: Source
    texts: Mapping[str, str]


class Setting(NamedTuple):
    """The value that one layer gives an option, as DescribeConfigs lists it among the synonyms."""

    key: str
    text: str
    source: Source


class Config:
    """The values of all options of ``table``: ``config[OPTION]`` is typed as the option's default.

    ``layers``: the strongest first. Raises InvalidConfig for a key that is not in ``table`` and for
    a text that is not a value of its option, so every Config is valid. ``beneath``: for a topic's
    or a group's configuration, the broker's, whose options give the defaults; None: for a
    broker's.
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
        """Return where the value in force was set; DEFAULT when it was not."""
        settings = self.settings(option)
        return settings[0].source if settings else Source.DEFAULT

    def given(self) -> Mapping[str, str]:
        """Return the texts that were set here, by key: of each key the strongest. No defaults."""
        given: dict[str, str] = {}
        for layer in reversed(self._layers):
            given.update(layer.texts)
        return given

    def is_given(self, option: Option[object]) -> bool:
        """Whether the option was set here, not inherited from ``beneath`` or defaulted."""
        return any(option.key in layer.texts for layer in self._layers)

    def text(self, option: Option[object]) -> str | None:
        """Return the value in force as DescribeConfigs writes it; None when there is no value."""
        value = self[option]
        return None if value is None else value_text(value)

    def over(self, *layers: Layer) -> "Config":
        """Return this configuration with ``layers`` above its own."""
        return Config(self.table, *layers, *self._layers, beneath=self._beneath)

    def settings(self, option: Option[object]) -> tuple[Setting, ...]:
        """Return what gives the option its value, the one in force first, as Kafka lists it.

        Of each layer, and last of the defaults: the option itself, then those it falls back on.
        Nothing when only these are set: their unit is another one.
        """
        if self._beneath is None:
            return tuple(dropwhile(lambda one: one.key != option.key, self._synonyms(option)))
        own = self._of_layers([option])
        followed = self._beneath.settings(option.follows[0].option) if option.follows else ()
        return (*own, *followed)

    def _synonyms(self, option: Option[object]) -> Iterator[Setting]:
        """Yield the settings of the option and of those it falls back on, the strongest first."""
        chain = [option]
        while (further := chain[-1].falls_back_on) is not None:
            chain.append(further)
        yield from self._of_layers(chain)
        for one in chain:
            if one.default is not None:
                yield Setting(one.key, value_text(one.default), Source.DEFAULT)

    def _of_layers(self, options: Sequence[Option[object]]) -> Iterator[Setting]:
        for layer in self._layers:
            for one in options:
                if one.key in layer.texts:
                    value = one.parse(layer.texts[one.key])
                    yield Setting(one.key, value_text(value), layer.source)

    def _inherit(self, beneath: "Config") -> None:
        """Take the values of unset options from the broker's options that they follow.

        Of several the first that has a value counts, converted to this option's unit.
        """
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
    """Return the texts that are valid for options in ``table``.

    Stored texts that another version of Ottla wrote may be unknown to this one.
    """
    usable: dict[str, str] = {}
    for key, text in texts.items():
        with suppress(InvalidConfig):
            table[key].parse(text)
            usable[key] = text
    return usable
