"""Config entries in answers of DescribeConfigs and CreateTopics. Source: KIP-226 (synonyms)."""

from collections.abc import Iterator, Sequence

from ottla.config.config import Config
from ottla.config.option import Option, Source
from ottla.protocol.messages.create_topics import CreatableTopicConfigs
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

_UNKNOWN_TYPE = 0
"""The ConfigType of a key that is in no option table."""


def listed(config: Config) -> Iterator[Option[object]]:
    """Yield the options that clients may see, with those of one listener that they may alter."""
    yield from (option for option in config.table if not option.internal)
    for key in config.given():
        option = config.table.made_of(key)
        if option is not None and option.dynamic:
            yield option


def describe(
    config: Config, option: Option[object], *, synonyms: bool, documentation: bool
) -> DescribeConfigsResourceResult:
    """Return an option's value in force and its source.

    ``synonyms``: also its value in every source that sets it, the one in force first.
    """
    return DescribeConfigsResourceResult(
        name=option.key,
        value=None if option.sensitive else config.text(option),
        read_only=not option.dynamic,
        config_source=config.source(option),
        is_sensitive=option.sensitive,
        synonyms=[
            DescribeConfigsSynonym(
                name=setting.key,
                value=None if option.sensitive else setting.text,
                source=setting.source,
            )
            for setting in config.settings(option)
        ]
        if synonyms
        else [],
        config_type=option.type.code,
        documentation=option.doc if documentation else None,
    )


def unknown(
    key: str, sources: Sequence[Source], *, synonyms: bool
) -> DescribeConfigsResourceResult:
    """Return the entry of a key that is set but is no option: everything but its value."""
    return DescribeConfigsResourceResult(
        name=key,
        value=None,
        read_only=True,
        config_source=sources[0],
        is_sensitive=True,
        synonyms=[DescribeConfigsSynonym(name=key, value=None, source=source) for source in sources]
        if synonyms
        else [],
        config_type=_UNKNOWN_TYPE,
        documentation=None,
    )


def created(config: Config) -> list[CreatableTopicConfigs]:
    """Return a new topic's whole configuration."""
    return [
        CreatableTopicConfigs(
            name=option.key,
            value=config.text(option),
            read_only=not option.dynamic,
            config_source=config.source(option),
            is_sensitive=option.sensitive,
        )
        for option in listed(config)
    ]
