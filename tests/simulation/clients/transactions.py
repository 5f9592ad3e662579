"""Producers of transactions, who look at what they do, and write as who was fenced before them."""

from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.campaigns.administering.history import Call, Commit, Outcome, Transaction, Verdict
from tests.campaigns.administering.records import TRANSACTIONAL
from tests.simulation.clients.base import NOT_THE_COORDINATOR
from tests.simulation.clients.producers import Producer
from tests.simulation.clients.readers import EARLIEST, LATEST, list_offset

ABANDONED_CHANCE = 0.04
"""Of a transaction, that nobody ends it."""
GHOST_CHANCE = 0.1
"""Of a batch of a transaction, that one comes after it from who this producer was before."""
IDLE_SECONDS = 50.0
"""An id that was used within this time is not forgotten, whatever the options of a world."""
INVALID_PRODUCER_ID_MAPPING = 49
LOOK_CHANCE = 0.15
"""Of what is written in a transaction, that it is looked for while the transaction is open."""

GROUP, TRANSACTION = 0, 1
"""The types of coordinators."""


class TransactionalProducer(Producer):
    """Writes transactions over some partitions, and commits or aborts them (KIP-890)."""

    kind = "transactional"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._id = self.name
        self._patience_ms = self.random.choice([10_000, 20_000, 60_000])
        self._producer_id = self._epoch = -1
        self._transaction = None
        self._count = 0
        self._sequences = {}
        self._offset = 0
        self._offsets = []
        """Of the transaction: lists of commits, and a commit in each."""
        self._had = []
        """All ids and epochs that it was given; the last one counts."""
        self._begun = 0.0
        """When the transaction was."""
        self._last_used = 0.0
        """When the coordinator did something for this id last."""
        self._haunts = "producer.id.expiration.ms" not in world.mix.broker_options
        self._written = []
        """Of the last transaction that ended: where, in which life of the node, as whom."""

    @property
    def producer(self):
        """Its id and epoch."""
        return self._producer_id, self._epoch

    async def step(self):
        """Play one transaction."""
        if self._producer_id < 0 or self._transaction is not None:
            await self._close()
        if self._haunts and self._written and self.random.random() < 2 * GHOST_CHANCE:
            topic, *where = self.random.choice(self._written)
            if topic.is_living and await self._is_all_decided(topic, where[0]):
                await self._haunt(topic, *where)
        if self._haunts and len(self._had) > 1 and self.random.random() < GHOST_CHANCE:
            await self._haunt_anywhere()
        transaction = self._transaction = Transaction(f"{self.name}/{self._count}")
        self._count += 1
        self._begun = self.world.loop.now
        self.history.transaction_count += 2
        is_whole = True
        for _ in range(self.random.randint(1, 4)):
            is_whole = is_whole and await self._produce(transaction)
            if self.random.random() < 0.05:
                await self.world.sleep(self.random.random())
        if is_whole and self.random.random() < 0.4:
            is_whole = await self._commit_offsets()
        if self._patience_ms < 60_000 and self.random.random() < ABANDONED_CHANCE:
            self._abandon(transaction)
            return
        committed = is_whole and self.random.random() < 0.7
        await self._end(transaction, committed=committed)

    def _abandon(self, transaction):
        """Never be heard of again: the coordinator has to abort it. Go on under another id."""
        self.settle(transaction, Outcome.ABORTED)
        self._settle_offsets(Outcome.ABORTED)
        self.history.count("transactions abandoned")
        self._id = f"{self.name}-{self._count}"
        self._had.clear()
        self._written.clear()
        self._transaction = None
        self._producer_id = -1
        self.hang_up()

    async def _commit_offsets(self):
        """Commit an offset of a group in the transaction; return whether that went well."""
        chosen = self.choose()
        if chosen is None:
            return True
        topic, partition = chosen
        self._offset += 1
        commit = Commit(self._offset, Call())
        commits = self.history.commits[f"pipeline-{self.number}", topic.topic_id, partition]
        commits.append(commit)
        self._offsets.append((commits, commit))
        part = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=self._offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=f"pipeline-{self.number}",
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=[part])],
        )
        answer = await self.call(request, TxnOffsetCommitResponse)
        code = answer.topics[0].partitions[0].error_code
        self.world.coverage.answered("TxnOffsetCommit", code)
        if code in NOT_THE_COORDINATOR:
            await self.find_coordinator(GROUP, f"pipeline-{self.number}")
        if code == 0 and self.random.random() < 2 * LOOK_CHANCE:
            await self._look_at_open_offset(topic, partition)
        return code == 0 and topic.is_living

    def _is_surely_open(self):
        """Tell whether nobody but this producer can have ended the transaction."""
        _, ahead, behind = self.world.nemesis.clock_bounds
        is_young = self.world.loop.now - self._begun < self._patience_ms / 2000
        return is_young and not ahead and not behind

    async def _look_at_open_offset(self, topic, partition):
        """Ask for an offset that is not decided yet, as a consumer does that wants stable ones."""
        asked = OffsetFetchRequestTopics(
            topic_id=topic.topic_id.bytes, partition_indexes=[partition]
        )
        group = OffsetFetchRequestGroup(group_id=f"pipeline-{self.number}", topics=[asked])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        answer = (await self.call(request, OffsetFetchResponse)).groups[0]
        told = answer.topics[0].partitions[0] if answer.topics else answer
        self.world.coverage.answered("OffsetFetch of what is open", told.error_code)
        if not (answer.error_code or told.error_code) and self._is_surely_open():
            where = f"{topic.name}-{partition} ({topic.topic_id})"
            self.world.problem(
                f"{self.name}: the committed offset of {where} was told amid a transaction"
            )

    async def _look_at_stable_end(self, topic, partition, base_offset):
        """Ask where committed records end: not behind what is not decided yet."""
        code, end = await list_offset(self, topic, partition, LATEST, isolation=1)
        if code or end <= base_offset or not self._is_surely_open():
            return
        code, start = await list_offset(self, topic, partition, EARLIEST)
        # Else it was deleted meanwhile, and may have been made again: offsets are asked by name.
        if not code and start <= base_offset and topic.is_living:
            where = f"{topic.name}-{partition} ({topic.topic_id})"
            self.world.problem(
                f"{where}: the last stable offset is {end}, a transaction is open at {base_offset}"
            )

    async def _is_all_decided(self, topic, partition):
        """Tell whether no transaction is open there: EndTxn is answered before its markers come."""
        code, stable_end = await list_offset(self, topic, partition, LATEST, isolation=1)
        if code:
            return False
        code, end = await list_offset(self, topic, partition, LATEST)
        return not code and end == stable_end

    async def _haunt_anywhere(self):
        """Write in a transaction as who this was before, where no log need know of who is newer."""
        chosen = self.choose()
        if chosen is not None and await self._is_all_decided(*chosen):
            await self._haunt(*chosen, None, self._had[-2])

    async def _haunt(self, topic, partition, life, ghost_of):
        """Write as somebody does who has not heard that a newer one has his id: nobody takes it.

        ``life``: of the node, in which the newer one, or a marker, was written there: a log knows
        no other. What it knows may have been taken by retention when another one begins. But the
        coordinator, who is asked about what is transactional, knows always. None: it alone may.
        ``ghost_of``: an older id and epoch.
        """
        producer_id, epoch = ghost_of
        is_transactional = life is None or self.random.random() < 0.5
        ghost = Transaction(f"{self.name}/{self._count}/ghost")
        self.settle(ghost, Outcome.ABORTED)
        batch, data = self.make(
            topic,
            partition,
            transaction=ghost,
            attributes=TRANSACTIONAL if is_transactional else 0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )
        answer = await self.send(batch, data, self._id if is_transactional else None)
        self.judge(batch, answer)
        self.world.coverage.answered("Produce of a ghost", answer.error_code)
        if answer.error_code == 0 and (is_transactional or self.world.node.lives == life):
            where = f"{batch.name}-{partition} ({batch.topic_id})"
            self.world.problem(
                f"{where}: a batch of a producer that was fenced was taken: {producer_id}/{epoch}"
            )

    def _settle_offsets(self, outcome):
        """Take note of what became of the offsets of a transaction that is over for good."""
        for commits, commit in self._offsets:
            if outcome is Outcome.COMMITTED:
                commit.call.answer(Verdict.OK)
            elif outcome is Outcome.ABORTED:
                commits.remove(commit)
        self._offsets.clear()

    async def finish(self):
        """Fence off what is open: nothing of it is under way afterwards."""
        if self._transaction is not None:
            await self._close()

    async def _close(self):
        transaction = self._transaction
        if transaction is not None and transaction.outcome is Outcome.OPEN:
            self.settle(transaction, Outcome.ABORTED)
        await self._init()

    async def _init(self):
        code = await self.insist(
            f"InitProducerId of {self.name}", self._ask_for_id, coordinator=(TRANSACTION, self._id)
        )
        if code:
            self.world.problem(f"InitProducerId of {self.name}: error {code}")
            return
        if self._transaction is not None:
            self._settle_offsets(self._transaction.outcome)
        self._transaction = None
        self._sequences.clear()

    async def _ask_for_id(self):
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=self._patience_ms
        )
        answer = await self.call(request, InitProducerIdResponse)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        if answer.error_code == 0:
            self._note_producer()
        return answer.error_code

    def _note_producer(self):
        """Take note of an id and an epoch: each begins anew, so that what was before is fenced."""
        self._last_used = self.world.loop.now
        if self.producer in self._had:
            self.world.problem(f"{self.name}: producer {self.producer} was given twice")
        self._had.append(self.producer)

    async def _produce(self, transaction):
        chosen = self.choose()
        if chosen is None:
            return True
        topic, partition = chosen
        place = (topic.topic_id, partition)
        sequence = self._sequences.get(place, 0)
        batch, data = self.make(
            *chosen,
            transaction=transaction,
            attributes=TRANSACTIONAL,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        answer = await self.send(batch, data, self._id)
        if self.judge(batch, answer):
            return False
        self._sequences[place] = sequence + len(batch.ids)
        if self.random.random() < LOOK_CHANCE:
            await self._look_at_stable_end(topic, partition, answer.base_offset)
        if self._haunts and len(self._had) > 1 and self.random.random() < GHOST_CHANCE:
            await self._haunt(topic, partition, self.world.node.lives, self._had[-2])
        return True

    async def _end(self, transaction, *, committed):
        """Ask for the end, and again while the coordinator cannot tell."""
        self.settle(transaction, Outcome.UNKNOWN if committed else Outcome.ABORTED)
        answer = None

        async def ask():
            nonlocal answer
            request = EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                committed=committed,
            )
            answer = await self.call(request, EndTxnResponse)
            return answer.error_code

        code = await self.insist(
            f"EndTxn of {transaction.name}", ask, coordinator=(TRANSACTION, self._id)
        )
        self._judge_forgotten(code)
        self.world.coverage.answered("EndTxn", code)
        self.world.trace.note("ended", transaction.name, committed, code)
        if code == 0:
            self.settle(transaction, Outcome.COMMITTED if committed else Outcome.ABORTED)
            self._settle_offsets(transaction.outcome)
            topics, how = self.history.topics, (self.world.node.lives, self.producer)
            self._written = [(topics[at], number, *how) for at, number in self._sequences]
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._note_producer()
            self._sequences.clear()
            self._transaction = None
            self.history.count("transactions ended")
            return
        await self._init()

    def _judge_forgotten(self, code):
        """An id that was used just now is known (``transactional.id.expiration.ms``)."""
        idle = self.world.loop.now - self._last_used
        _, ahead, behind = self.world.nemesis.clock_bounds
        if code == INVALID_PRODUCER_ID_MAPPING and idle < IDLE_SECONDS and not ahead + behind:
            self.world.problem(f"{self.name}: the id is forgotten {idle:.1f} s after it was used")

    def settle(self, transaction, outcome):
        """Take note of how a transaction ended, as far as is known."""
        if transaction.outcome is not Outcome.COMMITTED or outcome is not Outcome.UNKNOWN:
            transaction.outcome = outcome
