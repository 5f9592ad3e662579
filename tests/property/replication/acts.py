"""What may happen in one turn of a life of replicas, and how often by comparison."""

import asyncio
import errno

from ottla.env.faulty_disk import DiskCall
from ottla.errors import KafkaError
from tests.property.replication.replicas import LOG_DIRS, TP
from tests.property.replication.writers import Writer


def fetch(life, replica):
    life.fetch(replica)


def chore(begin):
    """Return the act that begins a chore of a replica's housekeeper, beside those that run."""

    def act(_life, replica):
        work = begin(replica.node.housekeeper)
        replica.chores.append(asyncio.get_running_loop().create_task(work))

    return act


def move(life, replica):
    if not replica.partition.is_held:
        life.note("move", replica.which)
        replica.node.housekeeper.relocation.move(TP, life.random.choice(LOG_DIRS))


def delete_records(life, _replica):
    leader = life.leading()
    if leader is None or not life.is_deleted:
        return
    offset = life.random.randint(0, leader.partition.high_watermark)
    if offset > leader.partition.log.log_start_offset:
        life.note("delete", offset)
        leader.node.housekeeper.deletion.delete_records([(TP, offset)])


def come_and_go(_life, replica):
    """Let no fetch of a replica arrive, or every one again: a leader goes on alone meanwhile."""
    replica.is_cut_off = not replica.is_cut_off


def let_time_pass(life, replica):
    replica.node.clock.advance(life.random.choice([0.01, 1, 3, 61]))


def hear_of_metadata(_life, replica):
    replica.hear()


def roll(_life, replica):
    partition = replica.partition
    if replica.can_append and partition.log.log_end_offset:
        try:
            partition.log.roll()
            partition.flush()
        except KafkaError:
            pass  # The disk refused it.


def elect(life, _replica):
    if life.metadata.leader is None or life.random.random() < 0.4:
        life.elect()


def die(life, replica):
    if replica.is_alive:
        life.die(replica)


def start(life, _replica):
    down = [replica for replica in life.replicas if not replica.is_alive]
    if down:
        life.start(life.random.choice(down))


def refuse_calls(life, replica):
    number = life.random.choice([errno.ENOSPC, errno.ENOSPC, errno.EMFILE, errno.EIO])
    call = life.random.choice(list(DiskCall))
    life.note("refuse", replica.which, call.value, errno.errorcode[number])
    is_lasting = life.random.random() < 0.2 and not life.is_closing
    replica.node.disk.fail(call, nth=life.random.randint(1, 6), errno=number, lasting=is_lasting)


def heal(_life, replica):
    replica.node.disk.heal()
    replica.node.measure_space()


def die_at_a_call(life, replica):
    life.note("is to die", replica.which)
    replica.node.disk.kill_at(life.random.randint(1, 20))


WRITERS_ACTS = {Writer.send, Writer.send_again, Writer.end_transaction}
MACHINES_ACTS = {elect, start, die, delete_records, come_and_go}
ACTS = {
    Writer.send: 280,
    Writer.send_again: 40,
    Writer.end_transaction: 60,
    fetch: 300,
    chore(lambda housekeeper: housekeeper.cleaner.clean()): 60,
    chore(lambda housekeeper: housekeeper.snapshot_producers()): 30,
    chore(lambda housekeeper: housekeeper.deletion.delete_old_segments()): 30,
    move: 10,
    chore(lambda housekeeper: housekeeper.deletion.checkpoint()): 5,
    delete_records: 20,
    let_time_pass: 30,
    hear_of_metadata: 40,
    roll: 40,
    elect: 40,
    die: 20,
    start: 20,
    come_and_go: 20,
    refuse_calls: 17,
    heal: 9,
    die_at_a_call: 4,
}
"""What happens in a turn, and how often by comparison."""
