"""Where clients come in: the router with every API, the listener, this node's place in the cluster.

Owns how they are put together, and in which order they open and close: who hears of this node may
connect to it, and who connects hears of a cluster that has it.
"""

from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ottla.answer_memory import AnswerMemory
from ottla.cluster.membership import Membership
from ottla.config import broker as options
from ottla.coordinator.internal_topics import InternalTopicMaker
from ottla.environment import Environment
from ottla.handlers.advertised import Advertised
from ottla.handlers.client import Client
from ottla.handlers.router import Router
from ottla.handlers.routes import Services, router_of
from ottla.metadata.store import MetadataError
from ottla.metadata.values import BrokerValue
from ottla.network.connection import Dispatch, Keep, Peer
from ottla.network.frame import ReceiveBudget
from ottla.network.listener import Listener
from ottla.node.configuration import Configuration
from ottla.node.data import Data
from ottla.node.giving_up import GivingUp
from ottla.node.work import Work, measure_log_dirs
from ottla.settings import connections_room_of, group_topic_of, transaction_topic_of
from ottla.turns import Turns


class Memory(NamedTuple):
    """What requests and answers may take, and the line they stand in."""

    requests: ReceiveBudget
    answers: AnswerMemory
    turns: Turns


class Doors(NamedTuple):
    """What clients meet."""

    listener: Listener
    membership: Membership
    address: tuple[str, int]
    """Host and port really bound."""

    async def close(self, work: Work, *, grace_seconds: float) -> None:
        """Accept and read nothing more, answer what is in flight, and let clients go."""
        await self.listener.drain()
        work.answer_waiting()
        await self.listener.stop(grace_seconds=grace_seconds)

    async def leave(self) -> None:
        """End this node's session in the cluster."""
        with suppress(MetadataError):  # It ends with this process at the latest.
            await self.membership.leave()


def router_for(
    data: Data, work: Work, environment: Environment, configuration: Configuration, memory: Memory
) -> Router:
    """Return the router with every API."""
    config, image, controller = configuration.at_start, data.follower.image, work.controller
    return router_of(
        Services(
            node_id=configuration.node_id,
            config=config,
            image=image,
            topic_config=configuration.of_topic,
            replica_manager=work.replica_manager,
            deletion=work.housekeeper.deletion,
            relocation=work.housekeeper.relocation,
            broker_config=lambda: configuration.in_force,
            controller=controller,
            configs=work.configs,
            measure_log_dirs=lambda: measure_log_dirs(data.logs, environment),
            producer_ids=work.coordinators.producer_ids,
            groups=work.coordinators.groups,
            group_topic=InternalTopicMaker(group_topic_of(config), image, controller.create_topics),
            transactions=work.coordinators.transactions,
            transaction_topic=InternalTopicMaker(
                transaction_topic_of(config), image, controller.create_topics
            ),
            advertised=Advertised(configuration.node_id, _told(configuration)),
            clock=environment.clock,
            rng=environment.rng,
            turns=memory.turns,
            answers=memory.answers,
        )
    )


def make_listener(
    router: Router,
    data: Data,
    environment: Environment,
    configuration: Configuration,
    memory: Memory,
) -> Listener:
    """Return what will accept connections; it listens nowhere yet."""

    def open_dispatch(peer: Peer, keep: Keep) -> Dispatch:
        return partial(router.dispatch, client=Client(*peer), keep=keep)

    open_files_max, logs = environment.open_files_max, data.logs
    listener = Listener(
        net=environment.net,
        clock=environment.clock,
        limits=configuration.limits(),
        budget=memory.requests,
        answers=memory.answers,
        open_dispatch=open_dispatch,
        turns=memory.turns,
        room=lambda: connections_room_of(open_files_max, len(logs.logs)),
    )
    configuration.listeners.append(lambda: listener.set_limits(configuration.limits()))
    return listener


async def bind(
    listener: Listener,
    data: Data,
    environment: Environment,
    configuration: Configuration,
    giving_up: GivingUp,
) -> Doors:
    """Take the address, so that it can be told; nobody is served yet. Raises OSError."""
    config, endpoint = configuration.at_start, configuration.at_start[options.LISTENERS][0]
    address = await listener.start(host=endpoint.host, port=endpoint.port, paused=True)
    host, port = _told(configuration) or address
    membership = Membership(
        data.store,
        data.keys,
        configuration.node_id,
        BrokerValue(host=host, port=port, rack=config[options.BROKER_RACK]),
        clock=environment.clock,
    )
    membership.on_failed = giving_up.membership_ended
    return Doors(listener, membership, address)


async def join_and_open(doors: Doors, data: Data) -> None:
    """Become a member of the cluster, then serve."""
    revision = await doors.membership.join()
    await data.follower.reached(revision)
    doors.listener.open_doors()  # Not earlier: a client would hear of a cluster without brokers.


def _told(configuration: Configuration) -> tuple[str, int] | None:
    """Return the address that clients are told; None: the one they reached."""
    advertised = configuration.at_start[options.ADVERTISED_LISTENERS]
    return (advertised[0].host, advertised[0].port) if advertised else None
