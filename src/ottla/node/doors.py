"""Where clients come in: the router with every API, the listener, this node's place in the cluster.

Owns how they are put together, and in which order they open and close: who hears of this node may
connect to it, and who connects hears of a cluster that has it.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.answer_memory import AnswerMemory
from ottla.cluster.membership import Membership
from ottla.cluster.topics import NewTopic
from ottla.complaints import Complaints
from ottla.config import broker as options
from ottla.config.authorization import has_authorizer
from ottla.config.files import listeners_of
from ottla.config.hosts import BROKER_SESSION_TIMEOUT_MS
from ottla.config.security import ServedListener
from ottla.coordinator.internal_topics import InternalTopicMaker
from ottla.environment import Environment
from ottla.handlers.advertised import Advertised
from ottla.handlers.client import Client
from ottla.handlers.router import Router, Serve
from ottla.handlers.routes import router_of
from ottla.handlers.services import Services
from ottla.ids import STRANGER
from ottla.metadata.store import MetadataError
from ottla.metadata.values import BrokerValue, ListenerAddress
from ottla.network.connection import OpenDispatch, Peer
from ottla.network.entrance import Dispatch, Entrance
from ottla.network.frame import ReceiveBudget
from ottla.network.listener import Listener
from ottla.network.outgoing import Answer
from ottla.node.configuration import Configuration
from ottla.node.data import Data
from ottla.node.giving_up import GivingUp
from ottla.node.interbroker import INTER_BROKER, InterBroker, as_node, terms_of
from ottla.node.logins import Logins, credentials_of, logins_of
from ottla.node.quotas import (
    AcceptRatesInForce,
    ConnectionRatesInForce,
    QuotasInForce,
    client_quotas_of,
)
from ottla.node.work import Work, measure_log_dirs
from ottla.pending import Pending
from ottla.settings import connections_room_of, group_topic_of, transaction_topic_of
from ottla.turns import Turns

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from ottla.cluster.registrations import Registrations
    from ottla.handlers.authentication import Terms
    from ottla.handlers.authorization.making import Authorization
    from ottla.node.tls import CertificateNames, Certificates
    from ottla.replication.administration import ReplicaAdministration


class Memory(NamedTuple):
    """What requests and answers may take, and the line they stand in."""

    requests: ReceiveBudget
    answers: AnswerMemory
    turns: Turns


class Reception(NamedTuple):
    """Who serves clients."""

    serve: Serve
    known: Callable[[Client], Client]
    """Given each client before its first request; returns it with what it may do."""


class Doors(NamedTuple):
    """What clients meet."""

    listener: Listener
    membership: Membership
    addresses: Mapping[str, tuple[str, int]]
    """Host and port really bound, by the listener's name; in the order of the configuration."""
    certificates: "Certificates | None" = None
    """What the listeners with TLS show; None: there are none."""
    logins: Logins | None = None
    """What clients log in with; None: they never do."""

    @property
    def address(self) -> tuple[str, int]:
        """Those of the first listener."""
        return next(iter(self.addresses.values()))

    async def close(self, work: Work, *, grace_seconds: float) -> None:
        """Accept and read nothing more, answer what is in flight, and let clients go."""
        if self.logins is not None:
            self.logins.close()
        await self.listener.drain()
        work.answer_waiting()
        await self.listener.stop(grace_seconds=grace_seconds)

    async def leave(self) -> None:
        """End this node's session in the cluster."""
        with suppress(MetadataError):  # It ends with this process at the latest.
            await self.membership.leave()


def router_for(
    data: Data,
    work: Work,
    environment: Environment,
    configuration: Configuration,
    memory: Memory,
) -> Router:
    """Return the router with every API."""
    config, image = configuration.at_start, data.follower.image
    complaints = Complaints(logger, environment.clock)

    def maker(topic: NewTopic) -> InternalTopicMaker:
        tell = partial(complaints.note, logging.ERROR)
        return InternalTopicMaker(topic, image, work.controller.create_topics, tell)

    router = router_of(
        Services(
            node_id=configuration.node_id,
            config=config,
            image=image,
            topic_config=configuration.of_topic,
            replica_manager=work.replica_manager,
            deletion=work.housekeeper.deletion,
            relocation=work.housekeeper.relocation,
            broker_config=lambda: configuration.in_force,
            controller=work.controller,
            configs=work.configs,
            measure_log_dirs=lambda: measure_log_dirs(data.logs, environment),
            replica_administration=partial(_replica_administration, data, configuration),
            registrations=lambda: _registrations(data),
            producer_ids=work.producer_ids,
            coordinators=work.coordinators,
            group_topic=maker(group_topic_of(config)),
            transaction_topic=maker(transaction_topic_of(config)),
            advertised=Advertised(configuration.node_id, _told(configuration)),
            credentials=lambda: credentials_of(data, environment, configuration),
            client_quotas=lambda: client_quotas_of(data, configuration),
            clock=environment.clock,
            rng=environment.rng,
            turns=memory.turns,
            answers=memory.answers,
            authorization=_authorization(data, environment, configuration),
        )
    )
    QuotasInForce(router, environment, config).begin(data)
    return router


def _replica_administration(data: Data, configuration: Configuration) -> "ReplicaAdministration":
    from ottla.node.replicas import make_administration  # noqa: PLC0415 - few ask for it

    return make_administration(data, configuration)


def _registrations(data: Data) -> "Registrations":
    from ottla.cluster.registrations import Registrations  # noqa: PLC0415 - few forget nodes

    return Registrations(data.store, data.keys, data.follower)


def _authorization(
    data: Data, environment: Environment, configuration: Configuration
) -> "Authorization | None":
    """Return who may do what; None: everybody may do everything."""
    if not has_authorizer(configuration.at_start):
        return None
    from ottla.node.permissions import permissions_of  # noqa: PLC0415 - few have an authorizer

    return permissions_of(data, environment, configuration)


def make_listener(
    reception: Reception,
    data: Data,
    environment: Environment,
    configuration: Configuration,
    memory: Memory,
) -> Listener:
    """Return what will accept connections; it listens nowhere yet."""
    open_files_max, logs = environment.open_files_max, data.logs
    listener = Listener(
        net=environment.net,
        clock=environment.waits_clock,
        limits=configuration.limits(),
        budget=memory.requests,
        answers=memory.answers,
        open_dispatch=partial(_open_to_all, reception, ""),
        turns=memory.turns,
        room=lambda: connections_room_of(open_files_max, len(logs.logs)),
    )
    configuration.listeners.append(lambda: listener.set_limits(configuration.limits()))
    ConnectionRatesInForce(listener, environment, configuration.at_start).begin(data)
    AcceptRatesInForce(listener, environment, configuration)
    return listener


async def bind(
    listener: Listener,
    reception: Reception,
    data: Data,
    environment: Environment,
    configuration: Configuration,
    *,
    giving_up: GivingUp,
    shared: Mapping[str, tuple[str, int]],
    inter_broker: InterBroker | None,
) -> Doors:
    """Take the addresses, so that they can be told; nobody is served yet.

    ``shared``: by listener, a further address that several nodes accept connections from.
    ``inter_broker``: where other nodes are let in; None: they come as clients do.

    Raises OSError, MetadataError, InvalidConfig; then no address is taken.
    """
    config = configuration.at_start
    addresses: dict[str, tuple[str, int]] = {}
    logins = await logins_of(data, environment, configuration)
    certificates = _certificates(environment, configuration)
    try:
        for served in listeners_of(config):
            endpoint = served.endpoint
            cover = None
            if certificates is not None and served.tls is not None:
                cover = await certificates.cover_of(served)
            begin = partial(
                listener.start,
                name=endpoint.name,
                paused=True,
                open_dispatch=_opener(reception, served, logins),
                cover=cover,
            )
            addresses[endpoint.name] = await begin(host=endpoint.host, port=endpoint.port)
            if endpoint.name in shared:
                host, port = shared[endpoint.name]
                await begin(host=host, port=port)
        told = {**addresses, **_told(configuration)}
        if inter_broker is not None:
            host, port = await listener.start(
                host=inter_broker.host,
                port=inter_broker.port,
                name=INTER_BROKER,
                paused=True,
                open_dispatch=_opener_to_nodes(reception, inter_broker, environment),
                is_for_nodes=True,
            )
            told[INTER_BROKER] = inter_broker.told or host, port
    except BaseException:
        if logins is not None:
            logins.close()
        await listener.stop(grace_seconds=0)
        raise
    first = config[options.LISTENERS][0].name
    membership = Membership(
        data.store,
        data.keys,
        configuration.node_id,
        BrokerValue(
            host=told[first][0],
            port=told[first][1],
            rack=config[options.BROKER_RACK],
            listeners=tuple(
                ListenerAddress(name, *told[name])
                for name in (*addresses, INTER_BROKER)
                if name in told
            ),
        ),
        clock=environment.clock,
        ttl_seconds=config[BROKER_SESSION_TIMEOUT_MS] / 1000,
    )
    membership.on_failed = giving_up.membership_ended
    return Doors(listener, membership, addresses, certificates, logins)


async def join_and_open(doors: Doors, data: Data) -> None:
    """Become a member of the cluster, then serve."""
    data.follower.add_listener(doors.membership.apply)
    revision = await doors.membership.join()
    await data.follower.reached(revision)
    doors.listener.open_doors()  # Not earlier: a client would hear of a cluster without brokers.


def _certificates(environment: Environment, configuration: Configuration) -> "Certificates | None":
    if all(served.tls is None for served in listeners_of(configuration.at_start)):
        return None
    from ottla.node.tls import Certificates  # noqa: PLC0415 - only TLS needs it

    return Certificates(environment, configuration)


def _opener(reception: Reception, served: ServedListener, logins: Logins | None) -> OpenDispatch:
    """Return who serves the clients of one listener."""
    name = served.endpoint.name
    if served.mapping_rules is not None:
        for pattern in served.mapping_rules.slow_patterns():
            logger.warning(
                "ssl.principal.mapping.rules of %s: %r repeats what repeats itself; a name in a"
                " certificate may keep this broker busy with it for very long",
                name,
                pattern,
            )
        from ottla.node.tls import CertificateNames  # noqa: PLC0415 - only TLS needs it

        names = CertificateNames(served.mapping_rules)
        return partial(_open_by_certificate, reception, name, names)
    if not served.mechanisms:
        return partial(_open_to_all, reception, name)
    assert logins is not None, "there are logins when clients log in anywhere"
    return partial(_open_to_known, reception, name, logins.terms_of(served))


def _open_to_all(reception: Reception, listener: str, peer: Peer, entrance: Entrance) -> Dispatch:
    client = reception.known(Client(*peer, listener=listener, line=entrance))
    return partial(reception.serve, client=client, keep=entrance.keep)


def _open_by_certificate(
    reception: Reception, listener: str, names: "CertificateNames", peer: Peer, entrance: Entrance
) -> Dispatch:
    """Return the dispatch of the first frame: by then the client's certificate is known."""

    def first(frame: memoryview) -> Answer | Pending[Answer | None] | None:
        principal = names.principal_of(entrance)
        client = Client(*peer, listener=listener, line=entrance)._replace(principal=principal)
        entrance.dispatch = partial(
            reception.serve, client=reception.known(client), keep=entrance.keep
        )
        return entrance.dispatch(frame)

    return first


def _open_to_known(
    reception: Reception, listener: str, terms: "Terms", peer: Peer, entrance: Entrance
) -> Dispatch:
    from ottla.handlers.authentication import Authentication  # noqa: PLC0415 - only SASL needs it

    authentication = Authentication(
        terms,
        Client(*peer, listener=listener, line=entrance)._replace(principal=STRANGER),
        entrance,
        serve_versions=reception.serve,
        let_in=lambda client: partial(
            reception.serve, client=reception.known(client), keep=entrance.keep
        ),
    )
    return authentication.dispatch


def _opener_to_nodes(
    reception: Reception, inter_broker: InterBroker, environment: Environment
) -> OpenDispatch:
    """Return who serves other nodes."""

    @cache
    def terms() -> "Terms":  # Made for the first node that connects.
        return terms_of(inter_broker.secret, environment)

    def known(client: Client) -> Client:
        return reception.known(as_node(client))

    let_in = Reception(reception.serve, known)
    return lambda peer, entrance: _open_to_known(let_in, INTER_BROKER, terms(), peer, entrance)


def _told(configuration: Configuration) -> dict[str, tuple[str, int]]:
    """Return the addresses that clients are told, by the listener that they came by."""
    return {
        endpoint.name: (endpoint.host, endpoint.port)
        for endpoint in configuration.at_start[options.ADVERTISED_LISTENERS]
    }
