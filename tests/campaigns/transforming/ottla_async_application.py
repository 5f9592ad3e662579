r"""The same as ``ottla_application``, on ``ottla.AsyncClient``."""

import asyncio
import faulthandler
import signal
import sys
import time
from collections.abc import Sequence

import ottla
from tests.campaigns.transforming import records, tracing
from tests.campaigns.transforming.application import CALL_SECONDS, say
from tests.campaigns.transforming.ottla_application import MeantToBeAborted, OttlaLife


class Application(OttlaLife):
    """One life of it: ends with a ClientError."""

    async def live(self) -> None:
        client = ottla.AsyncClient.from_config(self.client_config())
        try:
            self.producer = client.producer(transactional_id=self.slot)
            await self.take_over()
            self.consumer = client.consumer(**self.consumer_options())
            await self.consumer.subscribe(records.IN, **self.told())
            say("ready")
            while True:
                found = await self.consumer.poll(limit=self.batch, timeout=0.5)
                if found:
                    await self.transform(found)
                else:
                    say("idle")
        finally:
            await client.close(timeout=CALL_SECONDS)

    async def take_over(self) -> None:
        """End what an earlier life has left open: its offsets would else be waited for."""
        async with self.producer.transaction(timeout=CALL_SECONDS):
            pass

    async def transform(self, found: Sequence[ottla.Record]) -> None:
        self.count += 1
        try:
            if self.count % self.abort_every == 0:
                try:
                    async with self.producer.transaction(timeout=CALL_SECONDS) as transaction:
                        await self.write(found, is_marked=True)
                        await transaction.commit_offsets(self.consumer, timeout=CALL_SECONDS)
                        await self.producer.flush(timeout=CALL_SECONDS)
                        raise MeantToBeAborted
                except MeantToBeAborted:
                    say("marked")
            async with self.producer.transaction(timeout=CALL_SECONDS) as transaction:
                await self.write(found, is_marked=False)
                await transaction.commit_offsets(self.consumer, timeout=CALL_SECONDS)
        except ottla.Fenced:
            raise
        except ottla.ClientError as error:
            say("aborted", error)
            await self.take_over()  # However it ended, it has.
            await self.go_back()
        else:
            say("committed", len(found))

    async def write(self, found: Sequence[ottla.Record], *, is_marked: bool) -> None:
        """Write all that belongs to a transaction."""
        for topic, value, key, partition in self.results(found, is_marked=is_marked):
            await self.producer.send(topic, value, key=key, partition=partition)

    async def go_back(self) -> None:
        """Read from what is committed, as far as it is still this member's."""
        committed = await self.consumer.committed(timeout=CALL_SECONDS)
        for each in self.consumer.assignment:
            to = committed.get(each, "earliest")
            await self.consumer.seek(each, to, timeout=CALL_SECONDS)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    tracing.start()
    while True:
        try:
            asyncio.run(Application(sys.argv[1:]).live())
        except ottla.ClientError as error:
            say("anew", type(error).__name__, error)
            time.sleep(0.1)


if __name__ == "__main__":
    main()
