"""``ottla acl``: who may do what. Its options are those of ``kafka-acls.sh``."""

from argparse import Namespace
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import product

from ottla.cli import output as out
from ottla.cli.arguments import (
    Commands,
    Parser,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
)
from ottla.cli.consent import add_consent_options, ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean
from ottla.cli.output import FORMATS, Row, answer, note, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.acls import Acls
from ottla.client.asyncio.cluster import Cluster
from ottla.security.access import CLUSTER
from ottla.security.acl import (
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
)
from ottla.security.acl_filter import AclFilter, PatternFilter
from ottla.security.authorizer import addresses

COLUMNS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
_TOPIC, _GROUP, _TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
)
_O = Operation
_PRODUCER = {
    _TOPIC: (_O.WRITE, _O.DESCRIBE, _O.CREATE),
    _TRANSACTION: (_O.WRITE, _O.DESCRIBE),
}
_CONSUMER = {_TOPIC: (_O.READ, _O.DESCRIBE), _GROUP: (_O.READ,)}


def register(commands: Commands) -> None:
    """Declare the commands."""
    verbs = add_group(commands, "acl", "List, add and remove ACLs: who may do what.")
    parser = add_command(verbs, "list", "List ACLs; all, or those about what is named.", list_acls)
    _add_resources(parser)
    _add_pattern(parser, [one.name.lower() for one in PatternFilter], "any")
    parser.add_argument("--principal", metavar="TYPE:NAME", help="only this principal's")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    parser = add_command(verbs, "add", "Allow or deny something to somebody.", add)
    _add_rules(parser)
    parser.add_argument("--anyway", action="store_true", help="also what can never match")
    add_client_options(parser)

    parser = add_command(verbs, "remove", "Remove the ACLs that such an add has made.", remove)
    _add_rules(parser)
    add_consent_options(parser)
    add_client_options(parser)


def _add_resources(parser: Parser) -> None:
    for option in ("topic", "group", "transactional-id"):
        parser.add_argument(f"--{option}", metavar="NAME", action="append", default=[])
    parser.add_argument("--cluster", action="store_true")


def _add_pattern(parser: Parser, choices: list[str], default: str) -> None:
    parser.add_argument(
        "--resource-pattern-type",
        choices=choices,
        default=default,
        help=f"how names are compared: {default}",
    )


def _add_rules(parser: Parser) -> None:
    _add_resources(parser)
    _add_pattern(parser, ["literal", "prefixed"], "literal")
    for word in ("allow", "deny"):
        parser.add_argument(
            f"--{word}-principal",
            metavar="TYPE:NAME",
            action="append",
            default=[],
            help="such as User:alice, User:*",
        )
        parser.add_argument(
            f"--{word}-host", metavar="IP", action="append", default=[], help="from there only; *"
        )
    parser.add_argument(
        "--operation",
        metavar="OPERATION",
        action="append",
        default=[],
        help="Read, Write, Create, ...; All",
    )
    parser.add_argument("--producer", action="store_true", help="what a producer needs")
    parser.add_argument("--consumer", action="store_true", help="what a consumer needs")
    parser.add_argument("--idempotent", action="store_true", help="IdempotentWrite on the cluster")


def list_acls(options: Namespace) -> None:
    """List ACLs."""

    async def command(cluster: Cluster) -> None:
        pattern = PatternFilter[options.resource_pattern_type.upper()]
        named: list[tuple[ResourceType | None, str | None]] = [*_resources(options)]
        found: set[Acl] = set()
        for kind, name in named or [(None, None)]:
            wanted = AclFilter(kind, name, pattern, options.principal)
            found.update(await Acls(cluster).find(wanted))
        rows = [_row(acl) for acl in sorted(found)]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
        if not rows:
            note("no such ACLs: ottla acl add --consumer --topic T --allow-principal User:U")

    run(options, command)


def add(options: Namespace) -> None:
    """Add ACLs."""

    async def command(cluster: Cluster) -> None:
        acls = list(_acls(options))
        if not options.anyway:
            for acl in acls:
                _refuse_useless(acl)
        await Acls(cluster).create(acls)
        for acl in acls:
            answer(_sentence(acl))

    run(options, command)


def remove(options: Namespace) -> None:
    """Remove ACLs."""

    async def command(cluster: Cluster) -> None:
        acls = set(_acls(options))
        there = await Acls(cluster).find(AclFilter())
        found = [acl for acl in there if acl in acls]
        if not found:
            raise Failure("no such ACL", fix="ottla acl list", code=Exit.NOT_FOUND)
        for acl in found:
            note(f"remove: {_sentence(acl)}")
        kept = {acl.resource for acl in there if acl not in acls}
        bare = sorted({acl.resource for acl in found} - kept)
        if bare and await _is_open_without_acls(cluster):
            for kind, name in bare:
                what = f"{kind.name.lower().replace('_', ' ')} {name}"
                note(f"careful: no ACL is left about {what}: everybody may use it then")
        if options.dry_run:
            return
        if not options.yes:
            ask(f"remove {len(found)} ACL{'s' * (len(found) > 1)}? [y/N] ")
        await Acls(cluster).delete(found)
        answer(f"removed {len(found)}")

    run(options, command)


async def _is_open_without_acls(cluster: Cluster) -> bool:
    """Whether everybody may use what no ACL is about; no, if this user may not ask."""
    from ottla.client.asyncio import configs
    from ottla.client.asyncio.admin import Admin
    from ottla.errors import KafkaError

    key = "allow.everyone.if.no.acl.found"
    try:
        nodes = (await Admin(cluster).describe_cluster()).brokers
        broker = configs.Resource(configs.ResourceType.BROKER, str(min(nodes).node_id))
        (entry,) = await configs.Configs(cluster).describe(broker, [key])
    except (KafkaError, ValueError):  # It may not ask, or the broker does not know the option.
        return False
    return entry.value == "true"


def _resources(options: Namespace) -> Iterator[tuple[ResourceType, str]]:
    for kind, names in (
        (_TOPIC, options.topic),
        (_GROUP, options.group),
        (_TRANSACTION, options.transactional_id),
    ):
        for name in names:
            yield kind, name
    if options.cluster:
        yield CLUSTER


def _acls(options: Namespace) -> Iterator[Acl]:
    """Yield the ACLs that the options describe. Raises Failure when they describe none."""
    pattern = Pattern[options.resource_pattern_type.upper()]
    wanted = list(dict.fromkeys(_wanted(options)))
    rules = list(_who(options))
    if not rules:
        raise Failure("to whom?", fix="--allow-principal User:NAME", code=Exit.USAGE)
    if not wanted:
        raise Failure("to do what?", fix="--topic NAME --operation Read", code=Exit.USAGE)
    for (resource, operation), (principal, host, permission) in product(wanted, rules):
        of_cluster = resource.type is ResourceType.CLUSTER
        yield Acl(
            resource,
            Pattern.LITERAL if of_cluster else pattern,
            Rule(principal, host, operation, permission),
        )


def _who(options: Namespace) -> Iterator[tuple[str, str, Permission]]:
    """Yield principals with hosts. Raises Failure for hosts that are of no principal."""
    for word, principals, hosts, permission in (
        ("allow", options.allow_principal, options.allow_host, Permission.ALLOW),
        ("deny", options.deny_principal, options.deny_host, Permission.DENY),
    ):
        if hosts and not principals:
            raise Failure(
                f"--{word}-host {hosts[0]} says nothing without --{word}-principal",
                why="an ACL is about a principal from a host",
                fix=f"--{word}-principal User:NAME, or User:* for everybody",
                code=Exit.USAGE,
            )
        for principal, host in product(principals, hosts or [WILDCARD]):
            yield principal, host, permission


def _wanted(options: Namespace) -> Iterator[tuple[Resource, Operation]]:
    resources = [Resource(*one) for one in _resources(options)]
    operations = [_operation(text) for text in options.operation]
    roles = [_PRODUCER] * options.producer + [_CONSUMER] * options.consumer
    if not (operations or roles or options.idempotent):
        operations = [Operation.ALL]  # As kafka-acls.sh.
    for resource in resources:
        for operation in operations:
            yield resource, operation
        for role in roles:
            for operation in role.get(resource.type, ()):
                yield resource, operation
    if options.idempotent:
        yield CLUSTER, Operation.IDEMPOTENT_WRITE


def _operation(text: str) -> Operation:
    """Return the operation: ``AlterConfigs``, ``alter_configs`` and ``alter-configs`` are one."""
    plain = text.replace("_", "").replace("-", "").lower()
    for operation in Operation:
        if operation.name.replace("_", "").lower() == plain:
            return operation
    known = [_word(operation) for operation in Operation]
    fix = did_you_mean(text, known) or f"there are {', '.join(known)}"
    raise Failure(f"there is no operation {text}", fix=fix, code=Exit.USAGE)


def _refuse_useless(acl: Acl) -> None:
    """Raise Failure for an ACL that never matches anything."""
    kind, rule = acl.resource.type, acl.rule
    why = ""
    if rule.operation not in (*OPERATIONS_OF[kind], Operation.ALL):
        of_kind = ", ".join(map(_word, OPERATIONS_OF[kind]))
        why = f"a {kind.name} knows no {_word(rule.operation)}, only {of_kind}, All"
    elif acl.pattern is Pattern.PREFIXED and acl.resource.name == WILDCARD:
        why = "PREFIXED * means names that begin with a star; for all names: literal *"
    elif not rule.principal.startswith("User:") or rule.principal == "User:":
        why = f"{rule.principal}: principals are User:NAME"
    elif rule.host != WILDCARD and not _is_address(rule.host):
        why = f"{rule.host}: a host is the text of an IP address, no name and no network"
    if why:
        raise Failure("this ACL never matches", why=why, fix="add --anyway", code=Exit.USAGE)


def _is_address(text: str) -> bool:
    try:
        return text in addresses(str(ip_address(text)))
    except ValueError:
        return False


def _row(acl: Acl) -> Row:
    return {
        "resource": acl.resource.type.name,
        "name": acl.resource.name,
        "pattern": acl.pattern.name,
        "principal": acl.rule.principal,
        "host": acl.rule.host,
        "operation": acl.rule.operation.name,
        "permission": acl.rule.permission.name,
    }


def _sentence(acl: Acl) -> str:
    (kind, name), pattern, rule = acl
    what = f"{kind.name.lower().replace('_', ' ')} {name}"
    if pattern is Pattern.PREFIXED:
        what += " and what begins so"
    may = "may" if rule.permission is Permission.ALLOW else "may not"
    where = "" if rule.host == WILDCARD else f" from {rule.host}"
    return f"{rule.principal} {may} {_word(rule.operation)} {what}{where}"


def _word(operation: Operation) -> str:
    return operation.name.replace("_", " ").title().replace(" ", "")
