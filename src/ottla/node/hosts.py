"""A node that is one of several hosts: its metadata is in etcd, and others have to reach it.

Owns what makes it one: where etcd is, the cluster's name there, whose cluster its directories are
of, and the address and the secret by which the nodes of other hosts come in. The secret is made
from one that is in etcd: who can read it there can change all metadata anyway.
Source: cluster design 3.8.
"""

from __future__ import annotations

import hmac
import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.membership import AlreadyRegistered, registered_already
from ottla.config import broker as options
from ottla.config import hosts
from ottla.config.config import Config
from ottla.config.option import InvalidConfig, Option
from ottla.config.security import LOOPBACK
from ottla.env.clock import pause
from ottla.errors import OttlaError
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.metadata.etcd.address import EtcdAddress, NotAnEtcd, parse_address
from ottla.metadata.keys import Keys
from ottla.metadata.mirror import update
from ottla.metadata.store import MetadataStore, Unavailable
from ottla.metadata.values import decode_secret, encode_secret
from ottla.node.identity import agree_on_cluster, new_cluster_id
from ottla.node.interbroker import INTER_BROKER, SECRET_BYTES, InterBroker
from ottla.node.lineage import Lineage

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.environment import Environment
    from ottla.log.directories.manager import LogManager
    from ottla.metadata.etcd.members import Security
    from ottla.node.configuration import Configuration

logger = logging.getLogger(__name__)

_EVERY_ADDRESS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - names to compare with
_PORTS = 1 << 16
WAIT_MARGIN_SECONDS = 2.0
"""How much longer than it should the registration of a process that died may last."""
LOOK_SECONDS = 0.5


class CannotJoin(OttlaError):
    """A node cannot become a member of its cluster; tells what, why and how to mend it."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}: {why}; {fix}")
        self.what = what
        self.why = why
        self.fix = fix


class Host(NamedTuple):
    """Where a node finds its cluster, and is found by it."""

    address: EtcdAddress
    security: Security | None
    listen: str
    """Where it listens for other nodes; empty: at every address of the machine."""
    port: int
    """0: a free one."""
    told: str
    """The address of this host that other nodes are told."""

    @property
    def keys(self) -> Keys:
        """The keys of the cluster."""
        return Keys(self.address.name)

    async def open_store(
        self, environment: Environment, on_broken: Callable[[str], None]
    ) -> MetadataStore:
        """Return the store in etcd, which has answered. Raises CannotJoin, InvalidConfig.

        ``on_broken``: told on the loop when it cannot be used any more.
        """
        try:
            from ottla.metadata.etcd.members import Members  # noqa: PLC0415 - grpcio takes 100 ms
            from ottla.metadata.etcd.store import EtcdStore  # noqa: PLC0415 - as above
        except ModuleNotFoundError as error:
            why = (
                f"it needs the package {error.name}, which is not installed: "
                "pip install 'ottla[cluster]' brings it"
            )
            raise InvalidConfig(hosts.CLUSTER.key, None, why) from error
        address = self.address
        members = Members(address.endpoints, is_tls=address.is_tls, security=self.security)
        store = EtcdStore(members, environment.clock)
        store.on_broken = lambda error: on_broken(str(error))
        try:
            await store.get(self.keys.meta)
        except Unavailable as error:
            await store.close()
            fix = "see that etcd runs, and that --cluster names its client addresses"
            what = f"the metadata of the cluster {address.name} cannot be reached"
            raise CannotJoin(what, str(error), fix) from error
        return store

    async def wait_for_place(
        self, store: MetadataStore, environment: Environment, configuration: Configuration
    ) -> None:
        """Wait until no process is registered with this node's id.

        One that has died is registered until its session expires. Whoever has a living twin must
        leave no trace. Raises AlreadyRegistered, MetadataError.
        """
        clock, node_id = environment.clock, configuration.node_id
        ttl_seconds = configuration.at_start[hosts.BROKER_SESSION_TIMEOUT_MS] / 1000
        deadline = clock.monotonic() + ttl_seconds + WAIT_MARGIN_SECONDS
        key = self.keys.live_broker(node_id)
        while (found := await store.get(key)) is not None:
            why = registered_already(node_id, found)
            if clock.monotonic() >= deadline:
                raise AlreadyRegistered(why)
            logger.warning("%s: waiting until that session ends", why)
            await pause(clock, LOOK_SECONDS)

    async def agree_on_cluster(
        self, store: MetadataStore, environment: Environment, known: str | None, log_dir: str
    ) -> str:
        """Return the cluster's id. ``known``: that of the directories; None: they are new.

        Raises LogDirectoryUnusable, MetadataError.
        """
        if known is not None and await store.get(self.keys.meta) is None:
            raise LogDirectoryUnusable(
                log_dir,
                f"it is of cluster {known}, and {self.address} knows no cluster yet",
                "see that it is the right etcd and name, and put its backup back if it was emptied",
            )
        return await agree_on_cluster(store, self.keys, known or new_cluster_id(environment.rng))

    async def inter_broker(self, store: MetadataStore, environment: Environment) -> InterBroker:
        """Return where nodes of other hosts come in, and by which secret. Raises MetadataError."""
        made = encode_secret(environment.rng.random_bytes(SECRET_BYTES))
        entry = await update(store, self.keys.secret, lambda found: found or made)
        assert entry is not None, "the secret is never deleted"
        secret = hmac.digest(decode_secret(entry.value), INTER_BROKER.encode(), "sha256")
        return InterBroker(self.listen, self.port, secret.hex(), self.told)

    def lineage(
        self,
        store: MetadataStore,
        environment: Environment,
        configuration: Configuration,
        logs: LogManager,
        give_up: Callable[[LogDirectoryUnusable], None],
    ) -> Lineage:
        """Return what sees whether directories and metadata are of one history."""
        node_id = configuration.node_id
        return Lineage(store, self.keys, node_id, logs, environment, on_parted=give_up)


def host_of(config: Config) -> Host | None:
    """Return what the options say of other hosts; None: the node keeps its metadata itself.

    Raises InvalidConfig. Reads files.
    """
    text = config[hosts.CLUSTER]
    if text is None:
        return None
    try:
        address = parse_address(text)
    except NotAnEtcd as error:
        raise InvalidConfig(hosts.CLUSTER.key, None, str(error)) from error
    first = config[options.LISTENERS][0]
    port = config[hosts.INTER_BROKER_PORT]
    if port < 0:
        port = (first.port + 1) % _PORTS if first.port else 0
    return Host(address, _security(config, address), first.host, port, _told(config, address))


def _told(config: Config, address: EtcdAddress) -> str:
    """Return by which address other hosts reach this one. Raises InvalidConfig."""
    first = config[options.LISTENERS][0]
    advertised = {each.name: each.host for each in config[options.ADVERTISED_LISTENERS]}
    told = advertised.get(first.name, first.host)
    why = ""
    if told in _EVERY_ADDRESS:
        why = "it listens on every address, and other hosts have to be told one of them"
    elif told in LOOPBACK and not address.is_on_this_machine:
        why = f"other hosts cannot reach this one at {told}"
    if why:
        raise InvalidConfig(options.ADVERTISED_LISTENERS.key, None, f"{why}: --advertise HOST")
    return told


def _security(config: Config, address: EtcdAddress) -> Security | None:
    """Return how etcd is talked to; None: as to anybody. Raises InvalidConfig."""
    user = config[hosts.ETCD_USER]
    password = config[hosts.ETCD_PASSWORD]
    files = (hosts.ETCD_CA_FILE, hosts.ETCD_CERTIFICATE_FILE, hosts.ETCD_KEY_FILE)
    if (user is None) != (password is None):
        why = f"{hosts.ETCD_USER.key} and {hosts.ETCD_PASSWORD.key} go together"
        raise InvalidConfig(hosts.ETCD_USER.key, None, why)
    if not address.is_tls:
        for file in files:
            if config[file] is not None:
                raise InvalidConfig(file.key, None, f"it has no meaning with {address}: etcds://")
        if user is None:
            return None
    if (config[hosts.ETCD_CERTIFICATE_FILE] is None) != (config[hosts.ETCD_KEY_FILE] is None):
        why = f"it goes together with {hosts.ETCD_KEY_FILE.key}"
        raise InvalidConfig(hosts.ETCD_CERTIFICATE_FILE.key, None, why)
    from ottla.metadata.etcd.members import Security  # noqa: PLC0415 - grpcio takes 100 ms

    ca, certificate, key = (_read(config, file) for file in files)
    return Security(ca, key, certificate, user or "", password or "")


def _read(config: Config, option: Option[str | None]) -> bytes | None:
    path = config[option]
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidConfig(option.key, None, f"cannot read {path}: {error.strerror}") from error
