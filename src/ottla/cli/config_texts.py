"""Configs as people type them: ``key=value`` texts, with short forms of durations and sizes."""

from ottla.cli.failure import Exit, Failure
from ottla.config.human import plain
from ottla.config.option import InvalidConfig, Table


def read_configs(texts: list[str], table: Table, form: str, option: str = "") -> dict[str, str]:
    """Return the configs of ``texts``, durations and sizes of ``table`` made plain.

    ``form`` and ``option`` are how a text should look, and what stands before it, for the error.
    Raises Failure.
    """
    configs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise Failure(f"{option}{text!r} is not of the form {form}", code=Exit.USAGE)
        try:
            configs[key] = plain(table[key], value) if key in table else value
        except InvalidConfig as error:
            raise Failure(str(error), code=Exit.USAGE) from error
    return configs
