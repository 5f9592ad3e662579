"""Looks into all nodes, as no client can: who leads in which epoch, and are replicas the same?"""

import gc
import random

from ottla.ids import TopicPartition
from ottla.log.aborted import aborted_transactions
from tests.campaigns.administering.records import CONTROL, TRANSACTIONAL
from tests.simulation.checked import CheckedSegments
from tools.wire_client import batches

LOOK_SECONDS = 1.0
"""The mean time between two looks."""
READ_BYTES = 1 << 20


class Inspector:
    """Looks at the nodes of a world."""

    def __init__(self, world):
        self.world = world
        self._random = random.Random(f"{world.seed}/inspector")
        self._checked = CheckedSegments()
        self._leaders = {}
        """The life that led, by partition and leader epoch."""

    async def run(self):
        """Look now and then, for ever."""
        while True:
            await self.world.sleep(self._random.expovariate(1 / LOOK_SECONDS))
            for machine in self.world.machines:
                if machine.is_up and not machine.life.is_paused:
                    self._look(machine)

    def _look(self, machine):
        partitions = self._hosted(machine)
        for where, partition in partitions.items():
            if partition.is_leader and len(partition.state.replicas) > 1:
                key = where, partition.topic_id, partition.leader_epoch
                first = self._leaders.setdefault(key, machine.life.name)
                if first != machine.life.name:
                    self.world.problem(
                        f"{where}: {first} and {machine.life.name} lead in epoch "
                        f"{partition.leader_epoch}"
                    )
        if not partitions:
            return
        where = self._random.choice(sorted(partitions))
        partition = partitions[where]
        if partition.is_failed or partition.is_held or machine.is_suspect:
            return
        try:
            partition.check()
            with machine.unseen():
                self._checked.check(
                    partition.log, machine.disk, are_indexes_sure=not machine.has_lost_power
                )
        except AssertionError as error:
            text = f"{machine.name}: {where}: an invariant does not hold: {error}"
            self.world.problem(text, error)

    def _hosted(self, machine):
        return machine.broker.node.work.replica_manager.hosting.partitions

    def what_is_missing(self):
        """Return what keeps the cluster from being whole; "": nothing."""
        machines = self.world.machines
        for machine in machines:
            if not machine.is_up:
                return f"{machine.name} is down"
        for machine in machines:
            image = machine.broker.node.data.follower.image
            if len(image.brokers) != len(machines):
                return f"{machine.name} knows of {len(image.brokers)} nodes"
            for name, topic in sorted(image.topics.items()):
                for index in range(len(topic.partitions)):
                    missing = self._missing(TopicPartition(name, index), image)
                    if missing:
                        return f"{machine.name}: {missing}"
        return ""

    def _missing(self, where, image):
        state = image.partition(where)
        if state.leader < 0:
            return f"{where} has no leader: {state}"
        if len(state.isr) < len(state.replicas):
            return f"{where} has a small ISR: {state}"
        ends = set()
        for number in state.replicas:
            hosted = self._hosted(self.world.machines[number - 1]).get(where)
            if hosted is None:
                return f"{where} is not hosted at node {number}"
            if hosted.is_leader != (number == state.leader):
                return f"{where} at node {number} has another role: {state}, {hosted.state}"
            if hosted.is_held:  # It moves: nothing of it can be read just now.
                return f"{where} is held at node {number}"
            if hosted.is_failed:
                return f"{where} is out of service at node {number}"
            ends |= {hosted.log.log_end_offset, hosted.high_watermark, hosted.last_stable_offset}
        if len(ends) > 1:
            return f"{where} has many ends: {sorted(ends)}"
        starts = {
            number: self._hosted(self.world.machines[number - 1])[where].log_start_offset
            for number in state.replicas
        }
        if min(starts.values()) < starts[state.leader]:  # Later ones may have led before.
            return f"{where} starts below its leader's start at some node: {starts}"
        return ""

    def look_for_absent(self, absent):
        """Find where a node counts as in sync though nobody has heard of it for long.

        One that has all that there is may stay, as in Kafka: nothing waits for it.
        """
        for machine in self.world.machines:
            if machine is absent or not machine.is_up:
                continue
            for where, partition in self._hosted(machine).items():
                if not partition.is_leader or absent.number not in partition.state.isr:
                    continue
                remote = partition.view.remote(absent.number) if partition.view else None
                if remote is None or remote.end_offset < partition.log.log_end_offset:
                    text = f"{absent.name} has been away, and is in the ISR: {partition.state}"
                    self.world.problem(f"{machine.name}: {where}: {text}")
                    return

    def led_without_space(self, full):
        """Return by place and leader epoch what a node leads though somebody else has space."""
        brokers = full.broker.node.data.follower.image.brokers
        roomy = {one for one, broker in brokers.items() if not broker.registration.is_full}
        return {
            (where, partition.state.leader_epoch): partition.state
            for where, partition in self._hosted(full).items()
            if partition.is_leader and roomy.intersection(partition.state.isr) - {full.number}
        }

    def is_whole(self):
        """Tell whether every partition is led, its ISR is full, and its replicas have it all."""
        return not self.what_is_missing()

    def look_at_end(self, machine):
        """Find what a process that has stopped has not let go of."""
        gc.collect()  # What nobody can reach is closed by that, here as there.
        jobs = sum(job.life is machine.life for job in self.world.jobs.alive)
        files = machine.descriptors.count_kept()
        if jobs or files:
            paths = ", ".join(sorted(machine.descriptors.paths.values()))
            self.world.problem(
                f"{machine.name} has stopped, and there are {jobs} jobs, {files} files: {paths}"
            )

    def committed_of(self, where, *, is_compacted=False):
        """Return where a log begins, and its bytes from there on with its aborted transactions.

        All replicas agree on them, so that they are told once; of a compacted log those of each
        replica are told, for each is compacted for itself. The log begins where the last of them
        does: a replica that was away when records were deleted may have led since.
        """
        machines = [one for one in self.world.machines if where in self._hosted(one)]
        start = max(self._hosted(one)[where].log_start_offset for one in machines)
        told = [(one, *self._read(one, self._hosted(one)[where], start)) for one in machines]
        if is_compacted:
            return start, [(data, aborted) for _, data, aborted in told]
        first, data, aborted = told[0]
        for other, theirs, their_aborted in told[1:]:
            if theirs != data:
                pairs = enumerate(zip(data, theirs, strict=False))
                at = next((number for number, (mine, its) in pairs if mine != its), -1)
                self.world.problem(
                    f"{where}: {first.name} and {other.name} differ: {len(data)} and "
                    f"{len(theirs)} bytes, from {at} on"
                )
            if their_aborted != aborted:
                self.world.problem(
                    f"{where}: {first.name} and {other.name} differ in aborted transactions: "
                    f"{aborted} and {their_aborted}"
                )
        return start, [(data, aborted)]

    def _read(self, machine, partition, offset):
        pieces, end = [], partition.high_watermark
        aborted = set()
        with machine.unseen():
            while offset < end:
                read = partition.log.read(
                    offset, max_bytes=READ_BYTES, upper_offset=end, min_one_message=True
                )
                if read.region is None:
                    break
                for one in aborted_transactions(partition.log, offset, read, end):
                    aborted.add((one.first_offset, one.producer_id))
                data = read.region.read()
                pieces.append(data)
                offset = _end_of(data)
        data = b"".join(pieces)
        return data, aborted_within(data, aborted)


def aborted_within(data, aborted):
    """Return (first offset, producer id) of the transactions ``aborted``, as far as ``data`` goes.

    A replica that began anew while one was open, at a start that DeleteRecords had moved into it,
    never had its first batches. It knows it from the first one that it has; and not at all when it
    has none, since its marker ends nothing there. So each that begins below ``data`` counts from
    its first batch in it, and one without any, which no reader can tell, does not count.
    """
    found = list(batches(data))
    begin = found[0]["base_offset"] if found else 0
    begun = {}
    for one in found:
        if one["attributes"] & CONTROL:  # A producer's first marker ends what began below.
            begun.setdefault(one["producer_id"], None)
        elif one["attributes"] & TRANSACTIONAL:
            begun.setdefault(one["producer_id"], one["base_offset"])
    within = []
    for first_offset, producer_id in aborted:
        at = first_offset if first_offset >= begin else begun.get(producer_id)
        if at is not None:
            within.append((at, producer_id))
    return sorted(within)


def _end_of(data):
    """Return the offset after the last whole batch."""
    last = list(batches(data))[-1]
    return last["base_offset"] + last["last_offset_delta"] + 1
