"""The wall clock jumps, forward a day and back an hour: nothing acknowledged twice, or lost by it.

What goes by record timestamps (retention, rolling by age) goes by the clock as it is, as in Kafka.
"""

import pytest

from ottla.records.batch import TimestampType

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
JUMPS = [DAY_MS, 3 * DAY_MS, -HOUR_MS]
"""Further back than ``message.timestamp.after.max.ms`` new records are refused, as by Kafka."""


@pytest.mark.parametrize("jump_ms", JUMPS)
@pytest.mark.parametrize("restart", [False, True])
def test_a_batch_sent_again_after_a_jump_is_still_a_duplicate(
    place, open_partition, batch, clock, jump_ms, restart
):
    """A clock set forward by a day forgot all producers: what was on its way was stored twice."""
    log = open_partition(*place)
    sent = [bytes(batch(producer_id=7, producer_epoch=0, base_sequence=n)) for n in range(3)]
    first = [log.append(memoryview(bytearray(one)), leader_epoch=0) for one in sent]
    log.flush()
    if restart:
        log.close()
    clock.jump_wall(jump_ms)
    if restart:
        log = open_partition(*place, recovery_point=3)
    for one, before in zip(sent, first, strict=True):
        again = log.append(memoryview(bytearray(one)), leader_epoch=0)
        assert (again.base_offset, again.last_offset) == (before.base_offset, before.last_offset)
    assert log.log_end_offset == 3
    log.close()


def test_a_producer_that_is_silent_for_long_is_forgotten_all_the_same(log, batch, clock):
    log.append(batch(producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=0)
    clock.jump_wall(-HOUR_MS)
    clock.advance(DAY_MS / 1000)
    log.append(batch(producer_id=7, producer_epoch=0, base_sequence=5), leader_epoch=0)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_append_times_that_jump_are_found_and_read_after_a_kill(
    place, open_partition, batch, clock, read_all, jump_ms
):
    config = {
        "message_timestamp_type": TimestampType.LOG_APPEND_TIME,
        "segment_bytes": 400,
        "index_interval_bytes": 100,
        "segment_ms": HOUR_MS,
    }
    log = open_partition(*place, **config)
    for number in range(12):
        if number == 6:
            clock.jump_wall(jump_ms)
        log.append(batch(), leader_epoch=0)
        clock.advance(1)
    log.flush()
    log.check()
    before = read_all(log)
    assert [offset for offset, _, _ in before] == list(range(12))
    log.abandon()
    clock.jump_wall(-jump_ms)
    log = open_partition(*place, recovery_point=4, **config)
    assert read_all(log) == before
    log.append(batch(), leader_epoch=0)
    log.check()
    assert log.log_end_offset == 13
    log.close()
