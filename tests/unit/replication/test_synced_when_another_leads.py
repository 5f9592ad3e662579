"""What a leader with ``flush.messages`` above 1 syncs all the same."""

from ottla.errors import ErrorCode


def test_what_another_node_may_lead_by_now_counts_when_it_is_synced(make_node, words):
    """With ``flush.messages`` above 1, too: this node stays in the ISR, whatever it has lost."""
    node = make_node(flush_messages=10)
    partition = node.partition()
    partition.is_given_away = True
    for end in (1, 2):
        answer = node.append((0, words.batch()))
        assert partition.high_watermark == end - 1
        node.executor.run_all()
        assert words.codes(answer) == [ErrorCode.NONE]
        assert partition.log.flushed_offset == partition.high_watermark == end
    partition.is_given_away = False
    node.append((0, words.batch()))
    assert (partition.high_watermark, partition.log.flushed_offset) == (3, 2)


def test_what_was_acknowledged_is_synced_once_it_has_to_be(make_node, words):
    """A start after a power cut goes by the setting that it finds: with 1 all was synced."""
    node = make_node(flush_messages=10)
    node.append((0, words.batch()))
    partition = node.partition()
    settings = node.settings._replace(log=node.settings.log._replace(flush_messages=1))
    partition.configure(settings)
    node.executor.run_all()
    assert partition.log.flushed_offset == 1
