"""What can go wrong between a client and a cluster, besides the error codes in its answers."""

from ottla.env.tls import why_refused
from ottla.errors import ErrorCode, OttlaError


class ConnectionFailed(OttlaError):
    """No connection to ``host:port``, or it ended while answers were awaited."""

    def __init__(self, host: str, port: int, why: str, *, refused: bool = False) -> None:
        self.host = host
        self.port = port
        self.why = why
        self.refused = refused
        """Whether the machine answered that nothing listens there."""
        super().__init__(f"{host}:{port}: {why}")


class NoAnswer(ConnectionFailed):
    """Connected, but an answer did not come in time; whether the request was done is unknown."""


def reason(error: OSError) -> str:
    """Return what an OSError says, without its number, in lower case."""
    refused = why_refused(error)
    if refused is not None:
        return refused
    text = (error.strerror or str(error) or type(error).__name__).rstrip(".")
    return text[:1].lower() + text[1:]


def error_code(number: int) -> ErrorCode:
    """Return the code with this number; UNKNOWN_SERVER_ERROR for one that is newer than we are."""
    return _BY_NUMBER.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


_BY_NUMBER = {code.value: code for code in ErrorCode}
