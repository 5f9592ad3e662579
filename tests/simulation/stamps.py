"""Whether batches bear the time that their topic's ``message.timestamp.type`` asks for."""

CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"
SLACK_SECONDS = 2.0


def misstamped(history, topic, read, skew_seconds):
    """Return what is wrong with the stamps of batches that were read, one by one.

    Where the option may have had either value just then, either will do.
    """
    values = history.possible(topic, "message.timestamp.type", CREATE_TIME)
    for one in read:
        batch = history.sent.get(one.records[0].record) if one.records else None
        if batch is None:
            continue
        sent, over = batch.call.sent, batch.call.over + SLACK_SECONDS
        possible = {value for value, since, until in values if since <= over and sent <= until}
        kind = APPEND_TIME if one.append_time_ms is not None else CREATE_TIME
        what = f"{one.records[0].record} at {one.base_offset}"
        if kind not in possible:
            yield f"{what} has {kind}, and the topic had {sorted(possible)}"
        elif one.append_time_ms is not None:
            least = sent - skew_seconds - SLACK_SECONDS
            if not least <= one.append_time_ms / 1000 <= over + skew_seconds:
                yield f"{what} was appended at {one.append_time_ms} ms, sent at {sent:.3f} s"
