"""Whether a log that another one follows still begins with all that the other has.

Owns the leader's answer to a replica or a consumer that names the leader epoch of its last record.
Pure: knows no log. Source: KIP-101, KIP-279, KIP-595 (diverging epoch in Fetch); tests/model checks
these functions.
"""

from ottla.log.contents.leader_epochs import EpochEnd


def end_of_leaders_epoch(
    epoch: int, *, leader_epoch: int, latest_epoch: int, log_end_offset: int
) -> EpochEnd | None:
    """Return where ``epoch`` ends in a leader's log if no epoch with records tells; else None.

    The log hears of an epoch with its first record; until then the leader's own epoch is empty, at
    the log's end. ``latest_epoch``: of the last record, -1 without one.
    """
    if 0 <= epoch == leader_epoch or latest_epoch < 0 <= epoch < leader_epoch:
        return EpochEnd(epoch, log_end_offset)
    if latest_epoch < epoch < leader_epoch:
        return EpochEnd(latest_epoch, log_end_offset)
    return None


def shares_nothing_known(
    leaders_end: EpochEnd, log_start_offset: int, *, knows_epoch: bool, is_vouched_for: bool
) -> bool:
    """Tell whether nothing says that a follower's log and the leader's were ever the same.

    Records of the epoch of the follower's last one, and of all before, are deleted in the leader's
    log: ``knows_epoch`` is False, and its next epoch begins where the log starts. The two may have
    parted below that, and the follower knows producers and transactions of a history that is
    nobody's. A replica that ``is_vouched_for`` has what was committed, so all that was deleted, or
    was compared in this leader epoch before. In Kafka it goes on with what it knows.
    """
    return not knows_epoch and not is_vouched_for and leaders_end.end_offset <= log_start_offset


def end_of_what_is_left(
    leaders_end: EpochEnd, log_start_offset: int, fetch_offset: int, reached: int
) -> EpochEnd | None:
    """Return where a follower has to go back to, whose end lies in a gap of the leader's log.

    Its last epoch does not end below ``fetch_offset`` by ``leaders_end``; but of the leader's
    batches of that epoch the last one ends at ``reached``, and what comes next may have begun right
    behind it: the leader has heard of a later epoch when compaction had taken its first records. 0:
    it begins anew. None: the leader has a batch up to there.
    """
    if reached >= fetch_offset:
        return None
    if reached <= log_start_offset:
        return EpochEnd(leaders_end.epoch, 0)
    return EpochEnd(leaders_end.epoch, reached)


def divergence(
    leaders_end: EpochEnd, fetch_offset: int, last_fetched_epoch: int
) -> EpochEnd | None:
    """Return where the leader's log left the epoch of the follower's last record; None: it did not.

    ``leaders_end``: the leader's end offset for ``last_fetched_epoch``, which it knows.
    """
    if leaders_end.epoch < last_fetched_epoch or leaders_end.end_offset < fetch_offset:
        return leaders_end
    return None
