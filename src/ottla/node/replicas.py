"""Puts together what several replicas need, and takes a node without its logs out of the ISRs.

Loaded with the first partition of several replicas. Knows the store, the peers and the options;
``replication`` does the work.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from ottla.cluster.hearing import Hearing
from ottla.config import replication as options
from ottla.config.hosts import BROKER_SESSION_TIMEOUT_MS
from ottla.config.topic import (
    FLUSH_MESSAGES,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
)
from ottla.env.awake_clock import AwakeClock
from ottla.environment import Environment
from ottla.ids import TopicId, TopicPartition
from ottla.metadata.mirror import update
from ottla.metadata.values import NO_LEADER, PartitionState, decode_partition, encode_partition
from ottla.node.configuration import Configuration
from ottla.node.data import Data
from ottla.node.links import NodeLinks
from ottla.node.peers import NodePeers
from ottla.replication.administration import ReplicaAdministration
from ottla.replication.elections import grant_anew, withdraw
from ottla.replication.elector import ElectionRules, Elector
from ottla.replication.fetcher import FetcherSettings
from ottla.replication.hand_overs import HandOvers
from ottla.replication.missing import Missing
from ottla.replication.proposing import StoreProposals
from ottla.replication.relief import Relief
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replicas import ReplicaPorts, Replicas
from ottla.replication.standing import Standing

logger = logging.getLogger(__name__)

HEARD_FOR = 0.75
"""How much of the time after which a leader leaves out who lags."""
Decide = Callable[[TopicPartition, PartitionState], PartitionState]
"""Returns what a partition should be; the same object: it stays as it is."""


def make_replicas(
    data: Data,
    environment: Environment,
    configuration: Configuration,
    replica_manager: ReplicaManager,
    *,
    awake_clock: AwakeClock,
    links: NodeLinks,
) -> Replicas:
    """Return what follows other nodes, and keeps the ISRs of what this one leads."""
    config = configuration.at_start
    proposals = StoreProposals(data.store, data.keys, data.follower, replica_manager)
    hearing = Hearing(
        data.follower.catch_up,
        lambda: replica_manager.certain_until(),  # noqa: PLW0108 - it is set later
        environment.clock,
        patience_seconds=HEARD_FOR * config[options.REPLICA_LAG_TIME_MAX_MS] / 1000,
    )
    hand_overs = HandOvers(
        data.store, data.keys, data.follower, replica_manager, environment.waits_clock
    )
    return Replicas(
        replica_manager,
        data.logs,
        replica_manager.leader_of,
        ReplicaPorts(
            NodePeers(links, environment.clock),
            proposals,
            proposals.hand_over,
            hand_overs,
            environment.waits_clock,
            awake_clock,
            environment.executor,
            environment.rng.random_below,
            lambda: data.follower.image.brokers,
            replica_manager.hosting.make_anew,
            replica_manager.is_waited_for,
        ),
        fetching=FetcherSettings(
            config[options.REPLICA_FETCH_WAIT_MAX_MS],
            config[options.REPLICA_FETCH_MIN_BYTES],
            config[options.REPLICA_FETCH_MAX_BYTES],
            config[options.REPLICA_FETCH_RESPONSE_MAX_BYTES],
            config[options.REPLICA_FETCH_BACKOFF_MS],
        ),
        lag_max_ms=config[options.REPLICA_LAG_TIME_MAX_MS],
        standing=Standing(environment.clock, hearing.certain_until, hearing.stop),
        relief=Relief(
            data.logs,
            lambda: replica_manager.partitions,
            lambda is_full: replica_manager.tell_full(is_full),  # noqa: PLW0108 - as above
            hand_overs.relieve,
            environment.waits_clock,
        ),
    )


def make_administration(data: Data, configuration: Configuration) -> ReplicaAdministration:
    """Return what moves replicas and leaders when clients ask for it."""
    rules = partial(_election_rules, configuration)
    return ReplicaAdministration(data.store, data.keys, data.follower, rules)


def make_elector(data: Data, environment: Environment, configuration: Configuration) -> Elector:
    """Return what elects leaders while this node is the controller."""
    return Elector(
        data.store,
        data.keys,
        data.follower,
        node_id=configuration.node_id,
        rules=partial(_election_rules, configuration),
        clock=environment.waits_clock,
        ttl_seconds=configuration.at_start[BROKER_SESSION_TIMEOUT_MS] / 1000,
    )


def _election_rules(configuration: Configuration, topic: str) -> ElectionRules:
    config = configuration.of_topic(topic)
    return ElectionRules(
        config[MIN_INSYNC_REPLICAS],
        config[UNCLEAN_LEADER_ELECTION_ENABLE],
        leader_syncs=config[FLUSH_MESSAGES] == 1,
    )


async def withdraw_from(
    data: Data,
    configuration: Configuration,
    missing: Sequence[Missing],
    doubtful: Sequence[tuple[TopicPartition, TopicId]] = (),
    old: Sequence[tuple[TopicPartition, TopicId]] = (),
) -> None:
    """Take this node out of ISR and ELR of partitions whose log it has not: before it registers.

    Else the node could be elected with an empty log. While a log directory is away no log is made
    that may be in it: then nobody is taken out who may be the only one that has all, unless others
    are allowed to lead.

    ``doubtful``: of which a former process may have acknowledged what it had not synced, and has
    ended uncleanly. If it led them it is taken out, too, where others are in sync: a follower syncs
    before it says what it has.

    ``old``: whose logs are old copies. It is taken out wherever others are in sync, or have been
    when the ISR became too small. Raises MetadataError.
    """
    lost = {one.where for one in missing if one.was_there}
    withdrawal = _Withdrawal(data, configuration, lost)
    for where, topic_id, _ in missing:
        await withdrawal.carry_out(where, topic_id, withdrawal.of_lost)
    for where, topic_id in doubtful:
        await withdrawal.carry_out(where, topic_id, withdrawal.of_doubtful)
    for where, topic_id in old:
        await withdrawal.carry_out(where, topic_id, withdrawal.of_old)


class _Withdrawal(NamedTuple):
    """How this node leaves ISRs before it registers."""

    data: Data
    configuration: Configuration
    lost: Collection[TopicPartition]
    """Of which it is known that there was a log."""

    def of_lost(self, where: TopicPartition, state: PartitionState) -> PartitionState:
        """Return the state without this node, which has no log."""
        is_gone = where in self.lost or not self.data.directories_are_as_before
        after = withdraw(state, self.configuration.node_id, has_made=is_gone)
        if after is state or after.isr or after.elr:
            return after
        config = self.configuration.of_topic(where.topic)
        if self.data.logs.away() and not config[UNCLEAN_LEADER_ELECTION_ENABLE]:
            return state
        if is_gone:
            logger.error("%s: the log is lost here, and nobody else has all of it", where)
        return after

    def of_doubtful(self, _: TopicPartition, state: PartitionState) -> PartitionState:
        """Return the state without this node if it led, and others are in sync."""
        node = self.configuration.node_id
        after = withdraw(state, node) if state.leader == node else state
        return after if after.isr or after.elr else state

    def of_old(self, where: TopicPartition, state: PartitionState) -> PartitionState:
        """Return the state without this node, whose log is an old copy, if others have more."""
        after = withdraw(state, self.configuration.node_id)
        if after is state or after.isr or after.elr:
            return after
        logger.error("%s: an old copy is served: nobody else is in sync", where)
        return state

    async def carry_out(self, where: TopicPartition, topic_id: TopicId, decide: Decide) -> None:
        """Let a partition be what ``decide`` says, and the image tell of it."""

        def changed(value: bytes | None) -> bytes | None:
            if value is None:
                return None
            state = decode_partition(value)
            after = decide(where, state)
            if after is state:
                return value
            if after.leader != NO_LEADER:
                # This write is newer than the leader's registration; it must not pass for a grant.
                after = grant_anew(after)
            return encode_partition(after)

        key = self.data.keys.partition(topic_id, where.partition)
        entry = await update(self.data.store, key, changed)
        if entry is not None:
            await self.data.follower.reached(entry.mod_rev)
