from ottla.coordinator.group.offsets import CommittedOffset, Offsets


def value(offset, record_offset=0):
    return CommittedOffset(offset, -1, "", 1, record_offset=record_offset)


def test_put_get_remove():
    offsets = Offsets()
    offsets.put("g", "t", 0, value(1))
    offsets.put("g", "t", 1, value(2))
    offsets.put("g", "u", 0, value(3))
    assert offsets.get("g", "t", 1).offset == 2
    assert offsets.get("g", "t", 2) is offsets.get("h", "t", 0) is None
    assert offsets.all_of_group("g") == [("t", 0), ("t", 1), ("u", 0)]
    found = [key for keys in offsets.of_topics({"t", "other"}) for key in keys]
    assert sorted(set(found)) == [("g", "t", 0), ("g", "t", 1)]
    for topic, partition in offsets.all_of_group("g"):
        offsets.remove("g", topic, partition)
        offsets.remove("g", topic, partition)
        offsets.check()
    assert offsets.of_group("g") == {}


def test_a_transaction_counts_when_it_commits():
    offsets = Offsets()
    offsets.put("g", "t", 0, value(1, 1))
    offsets.put("g", "t", 0, value(2, 2), producer_id=7)
    offsets.put("g", "t", 1, value(3, 3), producer_id=8)
    assert offsets.get("g", "t", 0).offset == 1
    assert offsets.is_pending("g", "t", 0)
    assert offsets.is_pending("g", "t", 1)
    assert not offsets.is_pending("g", "t", 2)
    offsets.check()
    assert offsets.end_transaction(7, committed=True) == ["g"]
    assert offsets.end_transaction(7, committed=True) == []
    assert offsets.end_transaction(8, committed=False) == ["g"]
    offsets.check()
    assert not offsets.has_open_transaction("g")
    assert offsets.get("g", "t", 0).offset == 2
    assert offsets.get("g", "t", 1) is None


def test_a_later_commit_beats_a_transaction_that_wrote_earlier():
    offsets = Offsets()
    offsets.put("g", "t", 0, value(2, 5), producer_id=7)
    offsets.put("g", "t", 0, value(9, 6))
    offsets.end_transaction(7, committed=True)
    assert offsets.get("g", "t", 0).offset == 9


def test_a_deletion_takes_what_is_pending_too():
    offsets = Offsets()
    offsets.put("g", "t", 0, value(2, 5), producer_id=7)
    offsets.put("h", "t", 0, value(2, 5), producer_id=7)
    assert offsets.all_of_group("g") == [("t", 0)]
    offsets.remove("g", "t", 0)
    offsets.check()
    assert not offsets.has_open_transaction("g")
    assert offsets.has_open_transaction("h")
    offsets.remove("h", "t", 0)
    offsets.check()
    assert offsets.end_transaction(7, committed=True) == []
