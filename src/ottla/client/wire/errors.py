"""What can go wrong between a client and a cluster, besides the error codes in its answers."""

from ottla.env.tls import why_refused
from ottla.errors import ErrorCode, KafkaError, OttlaError


class ConnectionFailed(OttlaError):
    """No connection to ``host:port``, or it ended while answers were awaited."""

    def __init__(
        self, host: str, port: int, why: str, *, refused: bool = False, unserved: bool = False
    ) -> None:
        self.host = host
        self.port = port
        self.why = why
        self.refused = refused
        """Whether the machine answered that nothing listens there."""
        self.unserved = unserved
        """Whether the broker told its versions and closed then, without an answer: as one does
        that wants a login first."""
        super().__init__(f"{host}:{port}: {why}")


class Unsendable(KafkaError):
    """A request holds a value that its field cannot: a text that is no UTF-8, 2 to the 63rd, None.

    It was not sent. No retry helps.
    """

    def __init__(self, request: str, error: Exception) -> None:
        """``error``: what the encoder of ``request`` has raised."""
        why = f"{request} cannot hold a value: {error}"
        if isinstance(error, UnicodeEncodeError):
            why = f"{error.object!a} is not UTF-8 text"
        super().__init__(ErrorCode.INVALID_REQUEST, why)


class NoAnswer(ConnectionFailed):
    """Connected, but an answer did not come in time; whether the request was done is unknown."""


AT_ONCE = " before it said anything; if its listener wants TLS, set security.protocol"
"""What may be behind it when a client without TLS is hung up on."""

UNSERVED = " before it answered; if its listener wants a login, set sasl.mechanism"
"""What may be behind it when a client without SASL is hung up on."""


def reason(error: OSError | UnicodeError) -> str:
    """Return what an error of the system says, without its number, in lower case."""
    if isinstance(error, UnicodeError):
        return "no name of a host"
    refused = why_refused(error)
    if refused is not None:
        return refused
    text = error.strerror or str(error) or _WITHOUT_WORDS.get(type(error), "connection failed")
    return text[:1].lower() + text[1:].rstrip(".")


_WITHOUT_WORDS: dict[type[OSError], str] = {
    ConnectionResetError: "connection reset by peer",
    ConnectionRefusedError: "connection refused",
    ConnectionAbortedError: "connection aborted",
    BrokenPipeError: "connection closed by peer",
    TimeoutError: "no answer in time",
}
"""Of errors that asyncio raises bare."""


def error_code(number: int) -> ErrorCode:
    """Return the code with this number; UNKNOWN_SERVER_ERROR for one that is newer than we are."""
    return _BY_NUMBER.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


_BY_NUMBER = {code.value: code for code in ErrorCode}
