"""``ottla quota``: how much a user, a client id or an address may ask for."""

from argparse import ArgumentTypeError, Namespace
from math import isfinite

from ottla.cli import output as out
from ottla.cli.arguments import (
    Commands,
    Parser,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
)
from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean
from ottla.cli.output import FORMATS, Row, answer, note, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.quotas import ClientQuota, Quotas
from ottla.config.human import parse_size_bytes
from ottla.ids import QUOTA_DEFAULT, QuotaEntity

COLUMNS = ("user", "client_id", "ip", "key", "bound")
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_BYTE_RATE = "_byte_rate"
SHOWN_DEFAULT = "<default>"
_PARTS = ("user", "client_id", "ip")


def register(commands: Commands) -> None:
    """Declare the commands."""
    verbs = add_group(commands, "quota", "List, set and unset how much clients may ask for.")
    about = "List quotas: all, or those of a user, client id or address."
    parser = add_command(verbs, "list", about, list_quotas)
    _add_entity(parser)
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "Set bounds; those that are not named stay."
    parser = add_command(verbs, "set", about, set_bounds)
    parser.add_argument("bounds", metavar="KEY=NUMBER", nargs="+", help=", ".join(KEYS))
    _add_entity(parser)
    add_client_options(parser)

    about = "Take bounds away; all of them if none is named."
    parser = add_command(verbs, "unset", about, unset)
    parser.add_argument("keys", metavar="KEY", nargs="*", help=", ".join(KEYS))
    _add_entity(parser)
    add_client_options(parser)


def _add_entity(parser: Parser) -> None:
    for part, what in zip(_PARTS, ("user", "client id", "address"), strict=True):
        name = part.replace("_", "-")
        either = parser.add_mutually_exclusive_group()
        either.add_argument(f"--{name}", metavar="NAME", type=_name, help=f"this {what}")
        either.add_argument(
            f"--{name}-default",
            action="store_const",
            const=QUOTA_DEFAULT,
            dest=part,
            help=f"each {what} without a quota of its own",
        )


def _name(text: str) -> str:
    if not text:  # A script's variable that is not set must not bound everybody.
        raise ArgumentTypeError("the name is empty; the option that ends in -default is for all")
    return text


def list_quotas(options: Namespace) -> None:
    """List quotas."""

    async def command(cluster: Cluster) -> None:
        found = await Quotas(cluster).list_quotas(_entity(options))
        rows = [row for quota in found for row in _rows(quota)]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
        if not rows:
            note("no such quotas: ottla quota set producer_byte_rate=1MiB --user NAME")

    run(options, command)


def set_bounds(options: Namespace) -> None:
    """Set bounds."""

    async def command(cluster: Cluster) -> None:
        entity = _one_entity(options)
        changes = dict(map(_bound, options.bounds))
        await Quotas(cluster).alter(entity, changes)
        for key, bound in changes.items():
            answer(f"{_words(entity)}: {key} is {bound:.15g}")

    run(options, command)


def unset(options: Namespace) -> None:
    """Take bounds away."""

    async def command(cluster: Cluster) -> None:
        entity, quotas = _one_entity(options), Quotas(cluster)
        known = await quotas.list_quotas(entity, strict=True)
        there = [key for quota in known for key in quota.bounds]
        for key in options.keys:
            if key not in there:
                why = f"{_words(entity)} has no {key}"
                raise Failure(why, fix="ottla quota list", code=Exit.NOT_FOUND)
        keys = options.keys or there
        if not keys:
            why = f"{_words(entity)} has no quota"
            raise Failure(why, fix="ottla quota list", code=Exit.NOT_FOUND)
        await quotas.alter(entity, dict.fromkeys(keys))
        for key in keys:
            answer(f"{_words(entity)}: {key} is unset")

    run(options, command)


def _entity(options: Namespace) -> QuotaEntity:
    return QuotaEntity(options.user, options.client_id, options.ip)


def _one_entity(options: Namespace) -> QuotaEntity:
    entity = _entity(options)
    if entity == QuotaEntity():
        fix = "--user NAME, --client-id NAME, both, or --ip ADDRESS (or one of --...-default)"
        raise Failure("whose quota?", fix=fix, code=Exit.USAGE)
    return entity


def _bound(text: str) -> tuple[str, float]:
    key, _, number = text.partition("=")
    try:
        # What `config set` takes for bytes is good here, too: 1MiB, 64k.
        is_size = key.endswith(_BYTE_RATE) and not number[-1:].isdigit()
        bound = float(parse_size_bytes(number) if is_size else number)
    except ValueError:
        bound = float("nan")
    near = "" if key in KEYS else did_you_mean(key, KEYS)
    if near:
        raise Failure(f"there is no quota {key}", fix=near, code=Exit.USAGE)
    if not key or not isfinite(bound):
        fix = f"KEY=NUMBER, with one of {', '.join(KEYS)}; bytes also as 1MiB"
        raise Failure(f"not a bound: {text}", fix=fix, code=Exit.USAGE)
    return key, bound


def _rows(quota: ClientQuota) -> list[Row]:
    named: dict[str, str | None] = {}
    for part, name in zip(_PARTS, quota.entity, strict=True):
        named[part] = SHOWN_DEFAULT if name == QUOTA_DEFAULT else name
    defaults = [
        part for part, name in zip(_PARTS, quota.entity, strict=True) if name == QUOTA_DEFAULT
    ]
    return [
        {**named, "defaults": defaults, "key": key, "bound": _number(bound)}
        for key, bound in sorted(quota.bounds.items())
    ]


def _number(bound: float) -> int | float:
    return int(bound) if bound == int(bound) else bound


def _words(entity: QuotaEntity) -> str:
    parts = []
    for what, name in zip(("user", "client id", "address"), entity, strict=True):
        if name is not None:
            parts.append(f"each {what}" if name == QUOTA_DEFAULT else f"{what} {name}")
    return " with ".join(parts)
