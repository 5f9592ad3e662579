"""Sessions that end: what may be asked until then, and how a client logs in again."""

import struct

import pytest

from ottla.env.clock import ManualClock
from ottla.errors import CloseConnection
from ottla.handlers.authentication import Authentication, Terms
from ottla.handlers.client import Client
from ottla.handlers.refusals import Refusals
from ottla.handlers.session import LIFETIME_MS_MAX, lifetime_ms
from ottla.ids import Principal
from ottla.pending import Pending
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.security.exchange import Proved
from ottla.security.plain import Plain

USERS = {"alice": "wonder", "bob": "builder"}
METADATA = struct.pack(">hhih", 3, 1, 7, -1)


class Entrance:
    def __init__(self):
        self.dispatch, self.confined = None, 0

    def confine(self, **limits):
        self.confined += 1

    def let_in(self, dispatch):
        self.dispatch = dispatch


class UntilThen:
    """A mechanism whose proof ends: the token is the name and the end in ms of wall time."""

    def step(self, token):
        name, ends = token.decode().split()
        return Proved(Principal("User", name), expires_ms=int(ends))


class Caller:
    """A client, and the connection that it has."""

    def __init__(self, clock, reauth_ms):
        self.clock, self.entrance, self.served = clock, Entrance(), []
        self.clients = []
        terms = Terms(
            mechanisms={"PLAIN": lambda: Plain(USERS), "UNTIL": UntilThen},
            frame_bytes_max=1000,
            delay_seconds=0.1,
            seconds=10,
            clock=clock,
            refusals=Refusals(clock),
            reauth_ms=reauth_ms,
        )
        authentication = Authentication(
            terms,
            Client("1.2.3.4", 5, "127.0.0.1", 6),
            self.entrance,
            serve_versions=lambda frame, client: [b""],
            let_in=self.let_in,
        )
        self.entrance.dispatch = authentication.dispatch

    def let_in(self, client):
        self.clients.append(client)

        def serve(frame):
            self.served.append(bytes(frame))
            return [b"served"]

        return serve

    def ask(self, key, version, **fields):
        api = API_TABLE[key]
        out = bytearray(struct.pack(">hhih", key, version, 1, -1))
        if version >= 2:
            out += b"\0"
        api.request.encoder(version)(api.request(**fields), out, [])
        answer = self.entrance.dispatch(memoryview(out))
        if isinstance(answer, Pending):
            self.clock.advance(0.1)
            return answer
        position = 8 if key == ApiKey.SASL_HANDSHAKE or version < 2 else 9
        body = memoryview(b"".join(answer))
        return api.response.decoder(version)(body, position, len(body))[0]

    def shake_hands(self, mechanism="PLAIN"):
        return self.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)

    def log_in(self, token="\0alice\0wonder", mechanism="PLAIN"):
        self.shake_hands(mechanism)
        return self.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token.encode())

    def ask_metadata(self):
        return self.entrance.dispatch(memoryview(METADATA))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def caller(clock):
    return Caller(clock, {"PLAIN": 4000})


@pytest.mark.parametrize(
    ("reauth_ms", "expires_ms", "lifetime"),
    [
        (0, None, None),
        (4000, None, 4000),
        (0, 1500, 500),
        (4000, 1500, 500),
        (400, 1500, 400),
        (4000, 900, 0),
        (0, 1 << 62, LIFETIME_MS_MAX),
    ],
)
def test_a_session_ends_with_the_proof_or_the_limit(reauth_ms, expires_ms, lifetime):
    assert lifetime_ms(1000, reauth_ms=reauth_ms, expires_ms=expires_ms) == lifetime


def test_without_a_limit_the_router_serves_all_by_itself(clock):
    caller = Caller(clock, {})
    assert caller.log_in().session_lifetime_ms == 0
    clock.advance(10_000_000)
    assert caller.ask_metadata() == [b"served"]


def test_requests_are_served_until_the_end_and_no_longer(caller, clock):
    assert caller.log_in().session_lifetime_ms == 4000
    clock.advance(4)
    assert caller.ask_metadata() == [b"served"]
    clock.advance(0.001)
    with pytest.raises(CloseConnection, match="the session of alice is over"):
        caller.ask_metadata()
    assert len(caller.served) == 1


def test_a_proof_that_has_ended_already_lets_nobody_ask(clock):
    caller = Caller(clock, {})
    told = caller.log_in(f"alice {clock.wall_ms() - 10}", "UNTIL")
    assert (told.error_code, told.session_lifetime_ms) == (0, 0)
    clock.advance(0.001)
    with pytest.raises(CloseConnection):
        caller.ask_metadata()


def test_a_client_that_logs_in_again_goes_on_with_its_session(caller, clock):
    caller.log_in()
    clock.advance(3)
    assert caller.log_in().session_lifetime_ms == 4000
    clock.advance(4)
    assert caller.ask_metadata() == [b"served"]
    assert len(caller.clients) == 1, "who it is and what it may do stay"
    assert caller.entrance.confined == 1, "it keeps the limits of who is let in"


def test_the_end_does_not_keep_a_client_from_logging_in(caller, clock):
    caller.log_in()
    clock.advance(60)
    assert caller.log_in().error_code == 0
    assert caller.ask_metadata() == [b"served"]


def test_a_second_time_within_a_second_is_left_to_the_router(caller, clock):
    caller.log_in()
    caller.log_in()
    clock.advance(0.999)
    handshake = struct.pack(">hhihh5s", 17, 1, 1, -1, 5, b"PLAIN")
    assert caller.entrance.dispatch(memoryview(handshake)) == [b"served"]
    clock.advance(0.001)
    assert caller.log_in().error_code == 0


def test_a_client_stays_who_it_is(caller):
    caller.log_in()
    refusal = caller.log_in("\0bob\0builder")
    assert isinstance(refusal.error, CloseConnection)
    (answer,) = refusal.error.last_answer
    assert b"Cannot change principals during re-authentication from User.alice: User.bob" in answer


def test_a_wrong_password_ends_the_connection_the_second_time_too(caller):
    caller.log_in()
    refusal = caller.log_in("\0alice\0wrong")
    assert b"Invalid username or password" in refusal.error.last_answer[0]


def test_a_client_stays_with_its_mechanism(caller):
    caller.log_in()
    assert caller.shake_hands("UNTIL").error_code == 0
    with pytest.raises(CloseConnection, match="another mechanism"):
        caller.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"alice 99999999999999")


def test_an_unknown_mechanism_is_not_answered_the_second_time(caller):
    caller.log_in()
    with pytest.raises(CloseConnection):
        caller.shake_hands("GSSAPI")


def test_nothing_else_is_served_while_a_client_logs_in_again(caller):
    caller.log_in()
    caller.shake_hands()
    assert isinstance(caller.ask_metadata(), Pending)
    assert not caller.served
