"""Options of Kafka's scripts that have another name or form here: what they become, what to type.

``translated`` is for those that mean the same here, ``instead_of`` for those that do not. The
scripts' actions (``--create``, ``--describe``) are commands here. Source: the help of Kafka 4.3's
scripts; docs/migrating.md lists the names.
"""

import re
from collections.abc import Callable, Iterator, Sequence

NAMED = {
    "topic": ("--topic",),
    "consume": ("--topic",),
    "produce": ("--topic",),
    "group": ("--group",),
    "txn": ("--transactional-id",),
    "log": ("--files",),
}
"""Options that stand here for what a command takes without one."""
_EVERYWHERE = {
    "--consumer-property": "-X",
    "--producer-property": "-X",
    "--consumer.config": "--command-config",
    "--producer.config": "--command-config",
    "--consumer-config": "--command-config",
    "--producer-config": "--command-config",
}
RENAMED = {
    "consume": {**_EVERYWHERE, "--include": "--regex"},
    "produce": {
        **_EVERYWHERE,
        "--compression-codec": "--codec",
        "--request-required-acks": "--acks",
    },
    "group reset": {"--shift-by": "--shift", "--to-offset": "--to"},
    "bench produce": {"--record-size": "--size"},
}
"""By command: options with another name here, with the same values."""
REPLACED: dict[str, dict[str, tuple[str, ...]]] = {
    "group reset": {
        "--to-earliest": ("--to=earliest",),
        "--to-latest": ("--to=latest",),
        "--execute": ("--yes",),
        "--all-topics": (),
    },
    "topic list": {"--exclude-internal": ()},
    "log dump": {"--print-data-log": ("--records",), "--deep-iteration": ("--records",)},
}
"""By command: options without a value, and what says the same here."""


def _moment(text: str) -> tuple[str, ...]:
    """Return what ``--to-datetime`` means: in UTC, unless it names a zone."""
    has_zone = re.search(r"(Z|[+-]\d\d:?\d\d)$", text) is not None
    return (f"--to={text}{'' if has_zone else 'Z'}",)


_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII)


def _ago(text: str) -> tuple[str, ...]:
    """Return what ``--by-duration`` means: ``P1DT2H30M`` is ``-95400s``."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return (f"--to=-{text}",)
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return (f"--to=-{((days * 24 + hours) * 60 + minutes) * 60 + seconds}s",)


def _isolation(text: str) -> tuple[str, ...]:
    return ("--read-committed",) if text == "read_committed" else ()


VALUED: dict[str, dict[str, Callable[[str], tuple[str, ...]]]] = {
    "group reset": {"--to-datetime": _moment, "--by-duration": _ago},
    "consume": {"--isolation-level": _isolation},
}
"""By command: options whose value reads otherwise here."""


def translated(arguments: Sequence[str]) -> list[str]:
    """Return a command line with our names for Kafka's. ``arguments`` begin with the command."""
    names = NAMED.get(arguments[0], ())
    words = next(
        (each for each in (" ".join(arguments[:2]), arguments[0]) if each in _TRANSLATED), ""
    )
    if arguments[0] == "group" and "offsets" in arguments[1:2]:
        names = (*names, "--topic")
    return list(_translate(iter(arguments), names, words))


_TRANSLATED = {*RENAMED, *REPLACED, *VALUED}


def _translate(rest: Iterator[str], names: tuple[str, ...], words: str) -> Iterator[str]:
    renamed, replaced = RENAMED.get(words, {}), REPLACED.get(words, {})
    valued = VALUED.get(words, {})
    for each in rest:
        if each == "--":
            yield each
            yield from rest
            return
        option, equals, value = each.partition("=")
        if option in names:
            if equals:
                yield value
        elif option in renamed:
            yield renamed[option]
            if equals:
                yield value
        elif option in replaced and not equals:
            yield from replaced[option]
        elif option in valued:
            found = value if equals else next(rest, None)
            if found is None:
                yield each
            else:
                yield from valued[option](found)
        else:
            yield each


_ALL_OF_IT = "leave it out; state, members and offsets are shown together, all of it by -o json"
_PLACES = "name topic/NAME, broker/NUMBER, cluster or group/NAME instead"
_DESERIALIZER = "type --decode HOW, or --decode key=HOW"
_OF_CONFIGS: dict[str, str] = {
    "--entity-type": _PLACES,
    "--entity-name": _PLACES,
    "--add-config": "ottla config set OF KEY=VALUE",
    "--delete-config": "ottla config unset OF KEY",
}
INSTEAD: dict[str, dict[str, str]] = {
    "consume": {
        "--timeout-ms": "leave it out; without --tail it ends when all is read",
        "--skip-message-on-error": "type --skip-corrupt",
        "--formatter": r"type -f '%k\t%v\n', -o jsonl or --decode HOW",
        "--key-deserializer": _DESERIALIZER,
        "--value-deserializer": _DESERIALIZER,
    },
    "produce": {
        "--line-reader": r"type -f '%k\t%v', --jsonl or --file FILE",
        "--sync": "leave it out; it ends when all is acknowledged",
    },
    "topic create": {
        "--replica-assignment": "make it, then ottla topic move TOPIC:0 --brokers 1,2"
    },
    "topic alter": {"--add-config": "type -c KEY=VALUE, once for each"},
    "topic describe": dict.fromkeys(
        (
            "--under-replicated-partitions",
            "--unavailable-partitions",
            "--under-min-isr-partitions",
            "--at-min-isr-partitions",
        ),
        "ottla cluster health",
    ),
    "group describe": dict.fromkeys(("--members", "--offsets", "--state", "--verbose"), _ALL_OF_IT),
    "group reset": {
        "--to-current": "type --shift 0",
        "--export": "type --dry-run -o tsv",
    },
    "log dump": dict.fromkeys(
        ("--index-sanity-check", "--verify-index-only"), "ottla log verify DIR"
    ),
    "bench produce": {
        "--num-records": "type --for TIME",
        "--throughput": "ottla produce TOPIC --template TEXT --rate N",
        "--producer-props": "type -X KEY=VALUE",
    },
    "config get": _OF_CONFIGS,
    "config set": _OF_CONFIGS,
    "config unset": _OF_CONFIGS,
    "config explain": _OF_CONFIGS,
}
"""By command: options that have no equal here, and what does their work."""

OPTIONS_OF_SETTINGS = {
    "acks": "--acks",
    "auto.offset.reset": "--from",
    "compression.codec": "--codec",
    "compression.type": "--codec",
    "group.id": "-g",
    "isolation.level": "--read-committed",
}
"""Settings of Kafka's producers and consumers that are options here."""


def instead_of(words: Sequence[str], option: str, typed: Sequence[str]) -> str:
    """Return what does here what an option of Kafka's scripts does; nothing if it is none.

    ``typed``: the option with what stood behind it, and others of the kind.
    """
    command = " ".join(words)
    if command == "consume" and option in ("--property", "--formatter-property"):
        return _printing(_properties(typed))
    if command == "produce" and option in ("--property", "--reader-property"):
        return _reading(_properties(typed))
    return INSTEAD.get(command, {}).get(option, "")


def _properties(typed: Sequence[str]) -> dict[str, str]:
    """Return the keys and values among unknown words: ``--property``, ``print.key=true``."""
    found = {}
    for each in typed:
        text = each
        if each.startswith("-"):
            text = each.partition("=")[2]
        key, equals, value = text.partition("=")
        if equals:
            found[key] = value
    return found


_PRINTED = {
    "print.timestamp": "%T",
    "print.partition": "%p",
    "print.offset": "%o",
    "print.headers": "%h",
    "print.key": "%k",
    "print.value": "%v",
}


def _printing(properties: dict[str, str]) -> str:
    decoded = [
        "--decode " + ("key=HOW" if each.startswith("key.") else "HOW")
        for each in properties
        if each.endswith(".deserializer")
    ]
    wanted = {"print.value": "true"} | properties
    fields = [field for key, field in _PRINTED.items() if wanted.get(key) == "true"]
    between = properties.get("key.separator", "\\t")
    end = properties.get("line.separator", "\\n")
    return " ".join([f"type -f '{between.join(fields)}{end}'", *decoded])


def _reading(properties: dict[str, str]) -> str:
    fields = ["%v"]
    if properties.get("parse.key") == "true":
        fields.insert(0, properties.get("key.separator", "\\t"))
        fields.insert(0, "%k")
    if properties.get("parse.headers") == "true":
        fields.insert(0, properties.get("headers.delimiter", "\\t"))
        fields.insert(0, "%h")
    null = " --null" if "null.marker" in properties else ""
    return f"type -f '{''.join(fields)}'{null}"
