"""A consumer with a fetch session: it names only what has changed, and is told only what is new.

Judged as every reader is; and once all is quiet it has to get to the end of what it reads: a
session that has forgotten one of its partitions, or is told nothing of it, does not.
"""

import uuid

from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tests.simulation.clients.readers import (
    EARLIEST,
    LATEST,
    PARTITIONS_AT_ONCE,
    Reader,
    list_offset,
)

SESSION_IS_OVER = {70, 71, 106}


class SessionReader(Reader):
    """Keeps one session for as long as the node does."""

    kind = "session"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._places = []
        self._forget_session()

    def _forget_session(self):
        self._session_id, self._epoch = 0, 0
        self._known = {}
        """By place: the position that the node was told last."""

    def hang_up(self):
        super().hang_up()
        self._forget_session()

    async def step(self):
        self._choose()
        if self._places:
            await self._fetch(self.random.choice([0, 50, 500]))

    async def finish(self):
        """Read to the end of all that is chosen."""
        begin = self.world.loop.now
        ends = {}
        while self._places:
            place = next((at for at in self._places if self._is_behind(at, ends)), None)
            if place is None:
                return
            topic = self.history.topics[place[0]]
            if not topic.is_living:
                self._places.remove(place)
                continue
            if place not in ends:
                level = int(self._is_committed)
                code, end = await list_offset(self, topic, place[1], LATEST, level)
                if not code:
                    ends[place] = end
                    continue
            position, end = self._positions.get(place), ends.get(place)
            where = f"{topic.name}-{place[1]} ({topic.topic_id})"
            self.be_patient(begin, f"a session is at {position} of {where}, its end is {end}")
            await self._fetch(100)
            await self.world.sleep(0.05)

    def _is_behind(self, place, ends):
        return place not in ends or self._positions.get(place, -1) < ends[place]

    def _choose(self):
        living = [
            (topic.topic_id, partition)
            for topic in self.history.living()
            for partition in range(topic.partition_count)
        ]
        there = set(living)
        self._places = [place for place in self._places if place in there]
        if self._places and self.random.random() < 0.05:
            self._places.remove(self.random.choice(self._places))
        others = [place for place in living if place not in self._places]
        if others and len(self._places) < PARTITIONS_AT_ONCE:
            self._places.append(self.random.choice(others))
        for place in [place for place in self._positions if place not in self._places]:
            del self._positions[place]

    async def _fetch(self, wait_ms):
        topics = self.history.topics
        for place in self._places:
            if place not in self._positions:
                code, offset = await list_offset(self, topics[place[0]], place[1], EARLIEST)
                self._positions[place] = 0 if code else offset
        asked = [at for at in self._places if self._known.get(at) != self._positions[at]]
        forgotten = [at for at in self._known if at not in self._places]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(self._is_committed),
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[
                FetchTopic(
                    topic_id=topic_id.bytes,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            fetch_offset=self._positions[topic_id, partition],
                            partition_max_bytes=1 << 16,
                        )
                    ],
                )
                for topic_id, partition in asked
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id.bytes, partitions=[partition])
                for topic_id, partition in forgotten
            ],
        )
        answer = await self.call(request, FetchResponse)
        self.world.coverage.answered("Fetch of a session", answer.error_code)
        if answer.error_code:
            if answer.error_code not in SESSION_IS_OVER:
                self.world.problem(f"{self.name}: Fetch of a session: {answer.error_code}")
            self._forget_session()
            return
        for place in asked:
            self._known[place] = self._positions[place]
        for place in forgotten:
            del self._known[place]
        for told_of in answer.responses:
            for told in told_of.partitions:
                place = (uuid.UUID(bytes=told_of.topic_id), told.partition_index)
                if place in self._positions:
                    self._take(topics[place[0]], told)
        self._session_id = answer.session_id
        self._epoch += 1
        if not self._session_id:
            self._forget_session()
