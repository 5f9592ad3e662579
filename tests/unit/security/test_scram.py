import base64

import pytest

from ottla.client.wire.scram import Scram as Client
from ottla.client.wire.security import Credentials
from ottla.ids import Principal
from ottla.security.credentials import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredentials
from ottla.security.exchange import AuthenticationRefused, Proved
from ottla.security.scram import NONCE_BYTES, Scram, credential_of, salted

SALT = b"salt-of-26-bytes-or-so...."
SECRET, NO_KEY = b"s" * 32, b"k" * 32


def known(*users, mechanism=SCRAM_SHA_256, iterations=4096, salt=SALT):
    credentials = ScramCredentials()
    for name, password in users:
        hashed = salted(password, salt, iterations, mechanism)
        credentials.set(mechanism, name, credential_of(hashed, salt, iterations, mechanism))
    return credentials


def exchange(credentials, mechanism=SCRAM_SHA_256):
    return Scram(
        mechanism,
        lambda name: credentials.find(mechanism, name, SECRET, NO_KEY),
        bytes(NONCE_BYTES),
    )


def log_in(credentials, name, password, mechanism=SCRAM_SHA_256):
    client = Client(Credentials(mechanism, name, password), bytes(range(24)))
    broker = exchange(credentials, mechanism)
    challenge = broker.step(client.first())
    assert isinstance(challenge, bytes)
    proof = client.next(challenge)
    proved = broker.step(proof)
    assert client.next(proved.token) is None, "the client believes the broker, too"
    return proved


def test_the_exchange_of_rfc_7677():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    broker = exchange(known(("user", "pencil"), salt=salt))
    broker._more = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = broker.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    told = broker.step(b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert told == Proved(
        Principal("User", "user"), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
@pytest.mark.parametrize("name", ["bob", "a=b,c", "\uff41dmin", "x" * 255])
def test_whoever_knows_the_password_is_who_he_says(mechanism, name):
    credentials = known((name, "secret"), mechanism=mechanism)
    assert log_in(credentials, name, "secret", mechanism).principal == Principal("User", name)
    with pytest.raises(AuthenticationRefused):
        log_in(credentials, name, "Secret", mechanism)


def test_a_user_of_one_mechanism_is_unknown_to_the_other():
    with pytest.raises(AuthenticationRefused):
        log_in(known(("bob", "secret")), "bob", "secret", SCRAM_SHA_512)


def test_an_unknown_user_is_served_as_the_others_are():
    credentials = known(("bob", "secret"), ("eve", "secret"), iterations=8192)
    first = [
        exchange(credentials).step(b"n,,n=" + name + b",r=abc")
        for name in (b"bob", b"nobody", b"nobody", b"somebody")
    ]
    known_user, nobody, nobody_again, somebody = (
        dict(part.split(b"=", 1) for part in one.split(b",")) for one in first
    )
    assert nobody == nobody_again, "a salt that changes would tell"
    assert nobody[b"s"] != somebody[b"s"]
    assert len(nobody[b"s"]) == len(known_user[b"s"])
    assert nobody[b"i"] == known_user[b"i"] == b"8192"


def test_no_proof_fits_a_made_up_credential():
    credentials = known(("bob", "secret"))
    made_up = credentials.find(SCRAM_SHA_256, "nobody", SECRET, NO_KEY)
    assert made_up != credentials.find(SCRAM_SHA_256, "nobody", SECRET, b"another process")
    with pytest.raises(AuthenticationRefused):
        log_in(credentials, "nobody", "")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=bob",
        b"n,,n=,r=abc",
        b"n,,n=b=ob,r=abc",
        b"n,,n=b=3xob,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=bob,r=",
        b"n,,n=bob,r=a b",
        b"n,,m=x,n=bob,r=abc",
        b"n,,n=" + b"x" * 256 + b",r=abc",
        b"n,,n=bob,r=" + b"x" * 5000,
        b"c=biws,r=abc,p=YWJj",
        b"n,a=,n=bob,r=abc",
        *(b"n,,n=bob,r=abc," + more for more in (b"", b"x", b"1=2", b"x=", b"x=\0", b"x=\xc3\xa9")),
    ],
)
def test_a_first_message_that_is_none_is_refused(first):
    with pytest.raises(AuthenticationRefused, match="invalid credentials"):
        exchange(known(("bob", "secret"))).step(first)


def test_extensions_of_a_first_message_are_passed_over():
    assert exchange(known(("bob", "secret"))).step(b"n,,n=bob,r=abc,x=a=b,yy=2")


@pytest.mark.parametrize(
    "final",
    [b"", b"c=biws", b"c=biws,r=abc", b"c=biws,r=abc,p=", b"c=biws,r=abc,p====", b"n,,n=bob,r=abc"],
)
def test_a_final_message_that_is_none_is_refused(final):
    broker = exchange(known(("bob", "secret")))
    broker.step(b"n,,n=bob,r=abc")
    with pytest.raises(AuthenticationRefused, match="invalid credentials"):
        broker.step(final)


def test_messages_of_the_other_mechanism_are_refused():
    credentials = known(("bob", "secret"))
    client = Client(Credentials(SCRAM_SHA_512, "bob", "secret"), bytes(24))
    broker = exchange(credentials)
    proof = client.next(broker.step(client.first()))
    with pytest.raises(AuthenticationRefused):
        broker.step(proof)


def test_no_secret_is_in_what_is_printed():
    credential = known(("bob", "secret")).of(SCRAM_SHA_256)["bob"]
    assert repr(credential.stored_key) not in repr(credential)
    assert repr(credential.server_key) not in repr(credential)


@pytest.mark.parametrize("after", [(), (("bob", "other"),)], ids=["deleted", "another password"])
def test_who_is_no_longer_known_at_the_last_step_is_refused(after):
    """Else a proof that was begun before outlives the user's deletion."""
    before, later = known(("bob", "secret")), known(*after)
    now = [before]
    client = Client(Credentials(SCRAM_SHA_256, "bob", "secret"), bytes(range(24)))
    broker = Scram(
        SCRAM_SHA_256,
        lambda name: now[0].find(SCRAM_SHA_256, name, SECRET, NO_KEY),
        bytes(NONCE_BYTES),
    )
    proof = client.next(broker.step(client.first()))
    now[0] = later
    with pytest.raises(AuthenticationRefused, match="invalid credentials"):
        broker.step(proof)
