"""Decisions that are remembered, and forgotten in time."""

from ottla.ids import Principal
from ottla.security.access import BYTES_MAX, DECISIONS_MAX, OWN_BYTES, Access, Accesses, Room
from ottla.security.acl import Acl, Operation, Pattern, Permission, Resource, ResourceType, Rule
from ottla.security.authorizer import Authorizer

ALICE = Principal("User", "alice")
WRITE = Operation.WRITE


def allow(name, operation=WRITE, kind=ResourceType.TOPIC):
    rule = Rule("User:alice", "*", operation, Permission.ALLOW)
    return Acl(Resource(kind, name), Pattern.LITERAL, rule)


class Asked(Authorizer):
    """Counts what it is asked."""

    count = 0

    def may(self, *question):
        self.count += 1
        return super().may(*question)


def access_of(authorizer, heard=None):
    heard = [] if heard is None else heard
    return Access(authorizer, ALICE, "10.0.0.1", lambda *decision: heard.append(decision[1:]))


def test_a_question_is_decided_once():
    authorizer = Asked()
    authorizer.add(allow("t"))
    access = access_of(authorizer)
    assert all(access.may_write("t") for _ in range(3))
    assert not any(access.may_write("u") for _ in range(3))
    assert authorizer.count == 2


def test_topics_that_are_read_and_written_often_are_decided_as_the_others():
    authorizer, heard = Authorizer(), []
    authorizer.add(allow("t"))
    access = access_of(authorizer, heard)
    for _ in range(3):
        assert access.may_write("t")
        assert not access.may_fetch("t")
    read = allow("t", Operation.READ)
    authorizer.add(read)
    assert all(access.may_fetch("t") for _ in range(3))
    assert not access.may_fetch("u")
    authorizer.remove(read)
    assert not access.may_fetch("t")
    assert access.may_write("t")
    assert len(heard) == 5, "each denial of a Fetch"


def test_each_allowed_topic_is_heard_of_while_somebody_wants_to():
    authorizer, heard = Authorizer(), []
    authorizer.add(allow("t"))
    authorizer.tells_allowed = True
    access = access_of(authorizer, heard)
    assert all(access.may_write("t") for _ in range(3))
    assert len(heard) == 3


def test_a_change_of_any_acl_is_in_force_at_the_next_question():
    authorizer = Authorizer()
    access = access_of(authorizer)
    assert not access.may_write("t")
    authorizer.add(allow("t"))
    assert access.may_write("t")
    authorizer.remove(allow("t"))
    assert not access.may_write("t")
    assert not access.may_some(WRITE, ResourceType.TOPIC)
    authorizer.add(allow("u"))
    assert access.may_some(WRITE, ResourceType.TOPIC)


def test_who_asks_for_ever_new_names_takes_no_more_memory():
    access = access_of(Authorizer())
    for number in range(DECISIONS_MAX + 5):
        access.may_write(str(number))
    assert len(access._decisions) <= DECISIONS_MAX


def test_who_asks_for_very_long_names_takes_no_more_memory():
    access = access_of(Authorizer())
    for number in range(DECISIONS_MAX // 10):
        access.may_write(f"{number:030000}")
    assert sum(len(name) for _, _, name in access._decisions) <= BYTES_MAX + 30_000


def test_clients_of_many_hosts_take_no_more_memory_together():
    """Each host of a client without any right took 3.5 MB, as long as it was connected."""
    room = Room(100_000)
    accesses = [
        Access(Authorizer(), ALICE, f"10.0.0.{host}", lambda *_: None, room) for host in range(20)
    ]
    for access in accesses:
        for number in range(1000):
            access.may_write(f"{number:0200}")
            assert room.left_bytes >= 0
    held = sum(sum(150 + len(name) for _, _, name in access._decisions) for access in accesses)
    assert held <= 100_000 + 20 * OWN_BYTES
    assert all(access._decisions for access in accesses), "each has some memory of its own"
    del access
    accesses.pop()
    accesses.clear()
    assert room.left_bytes == 100_000


def test_what_is_forgotten_is_room_for_others():
    authorizer, room = Asked(), Room(50_000)
    first, second = (
        Access(authorizer, ALICE, host, lambda *_: None, room) for host in ("10.0.0.1", "10.0.0.2")
    )
    for number in range(100):
        first.may_write(f"{number:0300}")
    taken = room.left_bytes
    authorizer.add(allow("t"))
    assert first.may_write("t")
    assert room.left_bytes == 50_000 > taken
    for number in range(100):
        second.may_write(f"{number:0300}")
    assert len(second._decisions) == 100


def test_without_room_each_question_is_still_answered():
    authorizer = Authorizer()
    authorizer.add(allow("t" * 30_000))
    authorizer.add(allow("t" * 30_000, Operation.READ))
    access = Access(authorizer, ALICE, "10.0.0.1", lambda *_: None, Room(0))
    for _ in range(2):
        assert access.may_write("t" * 30_000)
        assert access.may_fetch("t" * 30_000)
        assert not access.may_write("u" * 30_000)
    assert not access._decisions
    assert not access.readable
    assert not access._writable


def test_a_question_about_an_empty_name_answers_no_other():
    """A Produce to the topic "" must not take the right to be an idempotent producer away."""
    authorizer = Authorizer()
    authorizer.add(allow("t"))
    access = access_of(authorizer)
    assert not access.may_write("")
    assert access.may_some(WRITE, ResourceType.TOPIC)
    assert not access.may_write("")


def test_denials_are_heard_unless_they_are_quiet():
    heard = []
    authorizer = Authorizer()
    authorizer.add(allow("t"))
    access = access_of(authorizer, heard)
    access.may_topic(WRITE, "u")
    access.may_topic(WRITE, "u", quiet=True)
    access.may_topic(WRITE, "t")
    assert heard == [(WRITE, Resource(ResourceType.TOPIC, "u"), False)]
    authorizer.tells_allowed = True
    access.may_topic(WRITE, "t")
    assert heard[1:] == [(WRITE, Resource(ResourceType.TOPIC, "t"), True)]


def test_operations_are_bits_and_count_what_is_implied():
    authorizer = Authorizer()
    authorizer.add(allow("t", Operation.READ))
    access = access_of(authorizer)
    asked = (Operation.READ, WRITE, Operation.DESCRIBE)
    assert access.operations(ResourceType.TOPIC, "t", asked) == 264
    assert access.operations(ResourceType.TOPIC, "u", asked) == 0


def test_connections_of_one_principal_and_host_share_and_leave_nothing():
    accesses = Accesses(Authorizer(), lambda *_: None)
    one = accesses.of(ALICE, "10.0.0.1")
    assert accesses.of(ALICE, "10.0.0.1") is one
    assert accesses.of(ALICE, "10.0.0.2") is not one
    del one
    assert len(accesses._known) == 0
