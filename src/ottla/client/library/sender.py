"""``Sender``: sends batches, and begins and ends the transactions that they are part of.

Owns the order of a transaction's steps; ``sending`` sends, ``transacting`` has the calls to the
coordinators. On asyncio. Source: KIP-98, KIP-360, KIP-447, KIP-890.
"""

import asyncio

from ottla.client.library.failures import (
    BadArgument,
    ClientClosed,
    ClientError,
    Fenced,
    as_failure,
    translated,
)
from ottla.client.library.sending import BatchSender
from ottla.client.wire.sending import NO_IDENTITY, ProducerIdentity
from ottla.client.wire.transacting import OffsetToCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

ENDING_SECONDS = 2.0
"""So long an end may take to complete, behind its answer."""
LOOK_SECONDS = 0.02


class Sender(BatchSender):
    """A producer's sender."""

    _is_ending_until = 0.0
    """Use: until then the end before may not be complete, in monotonic seconds."""

    async def begin(self) -> None:
        """Begin a transaction, taking the id over first if that is due. Raises Fenced."""
        if self.is_closed:
            raise ClientClosed("begin a transaction", "the producer is closed")
        if self._fatal is not None:
            raise self._fatal
        if self.settings.transactional_id is None:
            why = "the producer has no transactional id"
            raise BadArgument(
                "begin a transaction", why, fix="client.producer(transactional_id=..)"
            )
        if self.is_in_transaction:
            raise BadArgument("begin a transaction", "one is open already")
        while self.gatherer.unfinished_count:  # what was given up with the last one
            await self._wait_for_progress()
        self._unseen = []
        if self._needs_identity:
            with translated("begin a transaction"):
                self._identity = await self._regain()
            self._number_anew()
        with translated("begin a transaction"):
            self._is_second = await self._calls.speaks_second()
        self._spoiled = None
        self._wrote_in_transaction = False
        self.transaction_serial += 1
        self.is_in_transaction = True

    async def _regain(self) -> ProducerIdentity:
        """Return an identity with a fresh epoch: at the start, and after a failure.

        A producer that had one does not take the id back from another who has taken it over
        meanwhile: it aborts what it left open, or the coordinator says that it is fenced. In the
        first version a producer whose transaction has run out of time hears just the same.
        """
        identity = self._identity
        if self._is_second and identity.producer_id >= 0:
            try:
                raised = await self._ended(commit=False)
            except KafkaError as error:
                # Else it was committed, though nobody heard of it: so the id is still ours.
                if error.code is not ErrorCode.INVALID_TXN_STATE:
                    failed = as_failure("begin a transaction", error)
                    self._fatal = failed if isinstance(failed, Fenced) else None
                    raise failed from error
            else:
                if raised is not None:
                    return raised
        self._identity = NO_IDENTITY  # Until it is answered nobody knows whose the last epoch is.
        return await self._calls.take_over()

    async def _ended(self, *, commit: bool) -> ProducerIdentity | None:
        """Have the coordinator end what is open; return the next epoch (None: as it was).

        It answers an end before that is complete, and says PRODUCER_FENCED to the raised epoch
        until then, as Kafka does: for a moment that is no news of another producer.
        """
        while True:
            try:
                raised = await self._calls.end(
                    self._identity, commit=commit, second=self._is_second
                )
            except KafkaError as error:
                is_over = self.clock.monotonic() >= self._is_ending_until
                if error.code is not ErrorCode.PRODUCER_FENCED or is_over:
                    raise
                await asyncio.sleep(LOOK_SECONDS)
            else:
                self._is_ending_until = self.clock.monotonic() + ENDING_SECONDS
                return raised

    async def send_offsets(
        self,
        group: str,
        offsets: dict[TopicPartition, OffsetToCommit],
        *,
        member: tuple[str, int] = ("", -1),
    ) -> None:
        """Have the group remember ``offsets`` from the commit on. ``member``: id and generation."""
        self.check()
        if not offsets:
            return
        self._wrote_in_transaction = True
        what = f"commit offsets of group {group} with the transaction"
        try:
            with translated(what):
                await self._calls.commit_offsets(
                    self._identity, group, offsets, member, second=self._is_second
                )
        except ClientError as error:
            self._spoil(error)
            raise
        except asyncio.CancelledError:
            why = "its caller did not wait for it: nobody knows whether they are part of it"
            self._spoil(ClientError(what, why))
            raise

    async def end(self, *, commit: bool) -> None:
        """Commit or abort. A commit that cannot be becomes an abort, and raises why.

        When it is cancelled, nobody knows how the transaction ends; the next ``begin`` finds out.
        """
        try:
            failed = await self._gather_up(commit=commit)
            self.is_in_transaction = False
            await self._end(commit=commit, failed=failed)
        except asyncio.CancelledError:
            self._give_up()
            raise

    async def _gather_up(self, *, commit: bool) -> ClientError | None:
        """Wait until nothing is in flight. Return why the transaction cannot be committed."""
        if commit:
            failed: ClientError | None = None
            try:
                await self.flush()
            except ClientError as error:
                failed = error
            return self._spoiled or failed
        aborted = ClientClosed("send", "the transaction was aborted")
        for batch in self.gatherer.take_waiting():
            self._finish(batch, aborted)
        while self.gatherer.unfinished_count:
            await self._wait_for_progress()
        self._unseen = []
        return None

    def _give_up(self) -> None:
        """Send nothing more of the transaction; the id is taken over before the next begins.

        Not if nothing was written: then there is nothing to end, and the epoch is still fresh.
        """
        self.is_in_transaction = False
        if self._is_second and not self._wrote_in_transaction and not self._needs_identity:
            self._number_anew()
        else:
            self._needs_identity = True
        given_up = ClientClosed("send", "the transaction was given up")
        for batch in self.gatherer.take_waiting():
            self._finish(batch, given_up)
        for delivery in self._deliveries:
            delivery.cancel()

    async def _end(self, *, commit: bool, failed: ClientError | None) -> None:
        """Have the coordinator end the transaction. Raises ``failed`` after an abort."""
        if self._fatal is not None:
            raise self._fatal
        what = "commit the transaction" if commit else "abort the transaction"
        raised: ProducerIdentity | None = None
        if self._wrote_in_transaction:
            commit = commit and failed is None
            try:
                with translated(what):
                    raised = await self._ended(commit=commit)
            except ClientError as error:
                # Nobody knows how it ended; who takes the id over finds out.
                self._needs_identity = True
                if isinstance(error, Fenced):
                    self._fatal = error
                    if failed is not None and failed.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                        raise  # It has told the same, and less.
                if failed is not None:  # What spoiled the transaction is what the caller must see.
                    failed.add_note(f"the transaction was not aborted either: {error}")
                    raise failed from error
                raise
        for lane in self.gatherer.lanes():
            lane.is_in_transaction = False
        if raised is not None:
            self._identity = raised
            self._number_anew()
        if failed is not None:
            # Numbers of the old epoch may have been used up.
            self._needs_identity = self._needs_identity or raised is None
            raise failed
