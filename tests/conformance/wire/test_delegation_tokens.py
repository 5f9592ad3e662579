"""Delegation tokens where there are none: who asks is refused, each by the right code.

The answers are read by our own codec: kio takes no time of -1.
"""

import pytest

from ottla.protocol.apis import API_TABLE
from ottla.protocol.header import decode_response_header
from tests.authorizing import OPTIONS
from tests.logging_in import shake_hands, token
from tools.wire_client import WireClient

pytestmark = [pytest.mark.timeout(120)]
APIS = {api.name: api for api in API_TABLE.values()}
NOT_ALLOWED, OFF, NOT_AUTHORIZED, WRONG_KIND = 64, 61, 65, 67
BY_BROKER, BY_CONTROLLER = -1, 0
"""The times in a refusal."""


@pytest.fixture(scope="module")
def guarded(made, tmp_path_factory):
    """A broker with an authorizer; alice may do nothing, root everything."""
    data = tmp_path_factory.mktemp("tokens") / "data"
    with made(data, OPTIONS, protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        yield peer


@pytest.fixture(params=[None, "alice", "root"])
def asked(guarded, request):
    """Who asks (None: nobody in particular), and what asks."""
    user = request.param
    with WireClient(guarded.secured["SASL_PLAINTEXT"] if user else guarded.bootstrap) as wire:
        if user:
            shake_hands(wire, "PLAIN")
            assert token(wire, f"\0{user}\0{user}")["error_code"] == 0

        def ask(name, version, **fields):
            api = APIS[f"{name}DelegationToken"]
            wire.send_frame(wire.encode(f"{name.lower()}_delegation_token", version, **fields))
            frame = memoryview(wire.receive_frame())
            _, position = decode_response_header(
                frame, 0, len(frame), api_key=api.key, api_version=version
            )
            answer, end = api.response.decoder(version)(frame, position, len(frame))
            assert end == len(frame)
            return answer

        yield user, ask


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("owner", [("", ""), ("User", "bob"), ("Group", "bob"), ("User", "")])
@pytest.mark.parametrize("renewer", [None, "User", "Group"])
def test_nobody_gets_a_token(asked, version, owner, renewer):
    user, ask = asked
    renewers = [] if renewer is None else [{"principal_type": renewer, "principal_name": "x"}]
    kind, name = owner if version == 3 else ("", "")
    named = {"owner_principal_type": kind, "owner_principal_name": name} if version == 3 else {}
    answer = ask("Create", version, renewers=renewers, max_lifetime=-1, **named)
    if user is None:
        expected = (NOT_ALLOWED, BY_BROKER)
    elif user == "alice" and name:
        expected = (NOT_AUTHORIZED, BY_BROKER)
    elif renewer == "Group":
        expected = (WRONG_KIND, BY_BROKER)
    else:
        expected = (OFF, BY_CONTROLLER)
    assert (answer.error_code, answer.issue_timestamp_ms) == expected
    assert answer.expiry_timestamp_ms == answer.max_timestamp_ms == answer.issue_timestamp_ms
    me = ("User", user or "ANONYMOUS")
    assert (answer.principal_type, answer.principal_name) == ((kind, name) if name else me)
    requester = (answer.token_requester_principal_type, answer.token_requester_principal_name)
    assert requester == (me if version == 3 else ("", ""))
    assert (answer.token_id, bytes(answer.hmac)) == ("", b"")


@pytest.mark.parametrize("version", [1, 2])
def test_no_token_is_renewed_or_ended(asked, version):
    user, ask = asked
    expected = (OFF, BY_CONTROLLER) if user else (NOT_ALLOWED, BY_BROKER)
    for name, period in (("Renew", "renew_period"), ("Expire", "expiry_time_period")):
        answer = ask(name, version, hmac=b"abc", **{period: 1000})
        assert (answer.error_code, answer.expiry_timestamp_ms) == expected


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("owners", [None, [], [{"principal_type": "User", "principal_name": "b"}]])
def test_no_token_is_told_of(asked, version, owners):
    user, ask = asked
    answer = ask("Describe", version, owners=owners)
    assert (answer.error_code, answer.tokens) == (OFF if user else NOT_ALLOWED, [])
