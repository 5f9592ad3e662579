"""Producers that transform: records and a group's offsets in one transaction, over several nodes.

Some speak the protocol of transactions before KIP-890, some the present one; two may have the same
transactional id, so that each fences the other. An end without an answer is asked for again, as
real clients do. Judged at once: a group's offset is only ever that of a transaction that commits,
and of the last one that was told to have committed or a later one; epochs rise.
"""

from ottla.client.wire.errors import ConnectionFailed
from ottla.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.campaigns.administering.records import TRANSACTIONAL
from tests.simulation.cluster.clients import COMES_BACK, GROUP, TRANSACTION, Lost, OfTransactions
from tests.simulation.cluster.ledger import Fate, Transaction

OLD_PRODUCE, OLD_ADD, OLD_OFFSETS, OLD_END = 11, 3, 4, 4
"""The highest versions of a client that knows no KIP-890."""
FENCED = {47, 48, 49, 53, 59, 90, 120}
"""Another one has the id, or the transaction ran out of time: it begins anew."""
ANEW_CHANCE = 0.1
COMMITS_CHANCE = 0.7
AGAIN_CHANCE = 0.8


class Transformer(OfTransactions):
    """Writes transactions with offsets of a group."""

    kind = "transformer"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._is_old = self.random.random() < 0.5
        shared = number - number % 4 % 2 if number % 4 < 2 else number
        self._id = f"{self.kind}-{shared}"
        self.group = f"transformed-{shared}"
        self._transaction_ms = self.random.choice([5_000, 60_000])
        self._added = set()

    def _highest(self, version):
        return version if self._is_old else None

    # -- a transaction -------------------------------------------------------------------------

    async def step(self):
        has_none = self._transaction is not None or self._producer_id < 0
        if has_none or self.random.random() < ANEW_CHANCE:
            await self._begin_anew()
        if self._producer_id < 0:
            return
        self._count += 1
        transaction = self._transaction = Transaction(f"{self.name}/{self._count}")
        is_whole = True
        for _ in range(self.random.randint(1, 3)):
            is_whole = is_whole and await self._produce(transaction)
        if is_whole and self.random.random() < 0.8:
            is_whole = await self._commit_offsets(transaction)
        if is_whole:
            await self._end(transaction, committed=self.random.random() < COMMITS_CHANCE)
        else:
            transaction.fate = Fate.ABORTED
            self.ledger.counts["transformations given up"] += 1
        topic, partition = self.choose()
        await self.look(topic, partition)

    async def _begin_anew(self):
        before = self.ledger.epochs.get(self._id, (-1, -1))
        answer = await self._fence_off(self._id, self._transaction_ms)
        if answer is None:
            return
        self._take(answer.producer_id, answer.producer_epoch, before)
        self._transaction = None

    def _take(self, producer_id, epoch, before):
        """Go on with an epoch; ``before``: the highest that anybody had when it was asked for."""
        self.ledger.given(producer_id, self._id, self.name)
        if before[0] == producer_id and epoch <= before[1]:
            self.world.problem(f"{self.name}: epoch {epoch} of {producer_id} follows {before[1]}")
        known = self.ledger.epochs.get(self._id, (-1, -1))
        self.ledger.epochs[self._id] = max(known, (producer_id, epoch))
        if (producer_id, epoch) != (self._producer_id, self._epoch):
            self._sequences.clear()
        self._producer_id, self._epoch = producer_id, epoch
        self._added.clear()

    async def _patiently(self, what, ask):
        """Ask again while the code says so; return the last one."""
        begin = self.world.loop.now
        for _ in range(20):
            code = await ask()
            self.ledger.counts[f"{what} {code}"] += 1
            if code not in COMES_BACK:
                if code and code not in FENCED:
                    self.world.problem(f"{self.name}: {what}: error {code}")
                break
            if self.random.random() > AGAIN_CHANCE:
                break
            await self.later(begin, f"{what}: error {code}")
        return code

    async def _produce(self, transaction):
        topic, partition = self.choose()
        place = topic.name, partition
        if self._is_old and place not in self._added:
            if await self._patiently("AddPartitionsToTxn", lambda: self._add(place)):
                return False
            self._added.add(place)
        sequence = self._sequences.get(place, 0)
        sent, data = self.make(
            topic,
            partition,
            transaction=transaction,
            attributes=TRANSACTIONAL,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        part = PartitionProduceData(index=partition, records=data)
        data = TopicProduceData(
            name=topic.name, topic_id=topic.topic_id.bytes, partition_data=[part]
        )
        request = ProduceRequest(
            transactional_id=self._id, acks=-1, timeout_ms=5_000, topic_data=[data]
        )

        async def ask():
            leader = await self.leader(topic, partition)
            highest = self._highest(OLD_PRODUCE)
            answer = await self.ask(leader, request, ProduceResponse, highest=highest)
            code = self.judge(sent, answer)
            if code:
                self.forget_leaders()
            return 0 if code == 46 else code

        if await self._patiently("Produce in a transaction", ask):
            return False
        self._sequences[place] = sequence + len(sent.ids)
        return True

    async def _add(self, place):
        number = await self.coordinator(TRANSACTION, self._id)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        answer = await self.ask(number, request, AddPartitionsToTxnResponse, highest=OLD_ADD)
        told = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return told.partition_error_code

    async def _commit_offsets(self, transaction):
        topic, partition = self.choose()
        if self._is_old and await self._patiently("AddOffsetsToTxn", self._add_group):
            return False
        offsets = self.ledger.transformed.setdefault((self.group, topic.name, partition), [])
        offset = len(offsets)
        offsets.append(transaction)
        part = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=[part])],
        )

        async def ask():
            number = await self.coordinator(GROUP, self.group)
            highest = self._highest(OLD_OFFSETS)
            answer = await self.ask(number, request, TxnOffsetCommitResponse, highest=highest)
            return answer.topics[0].partitions[0].error_code

        return not await self._patiently("TxnOffsetCommit", ask)

    async def _add_group(self):
        number = await self.coordinator(TRANSACTION, self._id)
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=self.group,
        )
        answer = await self.ask(number, request, AddOffsetsToTxnResponse, highest=OLD_ADD)
        return answer.error_code

    async def _end(self, transaction, *, committed):
        transaction.fate = Fate.UNKNOWN if committed else Fate.ABORTED
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        told = None

        async def ask():
            nonlocal told
            for _ in range(3):
                try:
                    number = await self.coordinator(TRANSACTION, self._id)
                    highest = self._highest(OLD_END)
                    told = await self.ask(number, request, EndTxnResponse, highest=highest)
                except (ConnectionFailed, OSError, Lost):
                    self.hang_up()
                    await self.world.sleep(self.random.choice([0.05, 0.5, 2.0]))
                else:
                    return told.error_code
            raise Lost

        if await self._patiently("EndTxn", ask):
            return
        if committed and transaction.fate is Fate.ABORTED:
            self.world.problem(f"{transaction.name} is told to be committed, and is not")
        if committed:
            transaction.fate = Fate.COMMITTED
        self._transaction = None
        if self._is_old:
            self._added.clear()
        else:
            self._take(told.producer_id, told.producer_epoch, (self._producer_id, self._epoch))

    # -- what the group has --------------------------------------------------------------------

    async def look(self, topic, partition):
        """Read an offset back; return whether it could be read."""
        offsets = self.ledger.transformed.get((self.group, topic.name, partition), [])
        floor = max(
            (at for at, one in enumerate(offsets) if one.fate is Fate.COMMITTED), default=-1
        )
        number = await self.coordinator(GROUP, self.group)
        wanted = OffsetFetchRequestTopics(
            topic_id=topic.topic_id.bytes, partition_indexes=[partition]
        )
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[wanted])],
            require_stable=True,
        )
        answer = (await self.ask(number, request, OffsetFetchResponse)).groups[0]
        self.ledger.counts[f"OffsetFetch of a transformer {answer.error_code}"] += 1
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            return False
        at = answer.topics[0].partitions[0].committed_offset
        told = offsets[at] if 0 <= at < len(offsets) else None
        where = f"{self.name}: {self.group}: {topic.name}-{partition}"
        if at < floor:
            self.world.problem(f"{where}: offset {at}, and {offsets[floor].name} had committed")
        elif told is not None and told.fate in (Fate.OPEN, Fate.ABORTED):
            self.world.problem(f"{where}: offset {at} of {told.name}, which is {told.fate.value}")
        elif told is not None:
            told.fate = Fate.COMMITTED
        return True
