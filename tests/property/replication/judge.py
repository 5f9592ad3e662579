"""Judges three replicas that agree by now, by all that ever stood in the leader's log."""

from ottla.log.producers.states import ProducerStates
from ottla.records.control import ControlType, control_type_of, parse_end_transaction_marker
from tests.property.log.compacting import last_stable_offset, read_committed
from tests.property.replication.replicas import Violation, batches_of


def judge(life):
    """Raise Violation unless every replica has, and shows, what it has to.

    All are in sync, with every transaction ended and nothing on its way.
    """
    leader = life.replicas[life.metadata.leader]
    history = [leader.history[at] for at in sorted(leader.history)]
    states = states_by(history)
    shown = shown_by(history)
    for replica in life.replicas:
        log = replica.partition.log
        log.check(are_indexes_sure=False)
        replica.partition.check()
        judge_batches(replica, leader.history)
        judge_producers(replica, states)
        judge_reading(replica, shown, is_compacted=life.is_compacted)
    judge_promises(life.committed, shown)


def states_by(history):
    """Return the producers as one knows them who was told of every batch."""
    states = ProducerStates(10**9)
    for one in history:
        header = one.batch.header
        if header.producer_id < 0:
            continue
        if not header.is_control:
            states.update(header, header.last_offset, header.max_timestamp, 0)
        elif one.batch.records:
            marker = parse_end_transaction_marker(one.batch.records[0])
            ended = states.complete(header, marker, header.last_offset, 0, 0)
            if ended is not None:
                states.transactions.complete(ended)
    return states


def shown_by(history):
    """Return every record that is committed, by its value."""
    shown, waiting = {}, {}
    for one in history:
        header, records = one.batch.header, one.batch.records
        if header.is_control:
            ended = waiting.pop(header.producer_id, []) if records else []
            if ended and control_type_of(records[0].key) is ControlType.COMMIT:
                shown |= {record.value: record for record in ended}
        elif header.is_transactional:
            waiting.setdefault(header.producer_id, []).extend(records)
        else:
            shown |= {record.value: record for record in records}
    return shown


def judge_batches(replica, history):
    """Every batch is one of the leader's, and of the epoch that the cache tells for it."""
    log = replica.partition.log
    for batch in batches_of(log):
        header = batch.header
        where = f"{replica.which} at {header.base_offset} to {header.last_offset}"
        if header.last_offset not in history:
            raise Violation(f"{where}: the leader never had this batch")
        if header.base_offset >= log.log_start_offset:
            epoch = log.leader_epochs.epoch_for_offset(header.base_offset)
            if epoch != header.partition_leader_epoch:
                entries = log.leader_epochs.entries
                raise Violation(f"{where}: epoch {header.partition_leader_epoch}, not {entries}")


def judge_producers(replica, states):
    """It knows the newest batch and the open transaction of each producer; none is forgotten.

    But for those whose every batch is deleted: a replica that began anew never heard of them.
    """
    log = replica.partition.log
    start = log.log_start_offset
    for producer_id, known in log.producers.states:
        where = f"{replica.which}, producer {producer_id}"
        true = states.get(producer_id)
        if true is None:
            raise Violation(f"{where}: there is no such producer")
        found, first = known.current_transaction_first_offset, true.current_transaction_first_offset
        if found != first and not first < start <= found:
            raise Violation(f"{where}: its transaction begins at {first}, not at {found}")
        if known.batches and true.batches and known.batches[-1][:2] != true.batches[-1][:2]:
            raise Violation(f"{where}: its newest is {true.batches[-1]}, not {known.batches[-1]}")
        offsets = [batch.last_offset for batch in known.batches]
        if offsets != sorted(set(offsets)):
            raise Violation(f"{where}: its batches are out of order, {known.batches}")
    for producer_id, true in states:
        is_there = true.batches and true.batches[-1].last_offset >= start
        if is_there and log.producers.states.get(producer_id) is None:
            raise Violation(f"{replica.which} forgot {producer_id}: {true.batches[-1]}")


def judge_reading(replica, shown, *, is_compacted):
    """Who reads what is committed is shown all of it, and nothing else."""
    log = replica.partition.log
    stable = last_stable_offset(log)
    if stable != log.log_end_offset:
        raise Violation(f"{replica.which} is stable up to {stable} of {log.log_end_offset}")
    found = read_committed(log, 10**6)
    for one in found:
        true = shown.get(one.value)
        if true is None or true.offset != one.offset:
            raise Violation(f"{replica.which} shows {one}, committed is {true}")
    newest = {record.key: record.offset for record in sorted(shown.values(), key=_offset)}
    values = {one.value for one in found}
    for value, record in shown.items():
        is_replaced = is_compacted and newest[record.key] > record.offset
        if record.offset >= log.log_start_offset and value not in values and not is_replaced:
            raise Violation(f"{replica.which} lacks {record}, start {log.log_start_offset}")


def _offset(record):
    return record.offset


def judge_promises(committed, shown):
    """What was acknowledged, or committed by a marker, stands where it was promised to."""
    for value, offset in committed.items():
        true = shown.get(value)
        if true is None or true.offset != offset:
            raise Violation(f"{value} was promised at {offset}, there is {true}")
