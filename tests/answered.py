"""What a handler answers in the end: at once, in steps, or by a Pending that is resolved."""

from types import GeneratorType

from ottla.pending import Pending


def answered(response):
    """Return the message; do its steps without giving way. Whatever is waited for must be done."""
    while isinstance(response, Pending | GeneratorType):
        if isinstance(response, GeneratorType):
            response = last(response)
        elif response.error is not None:
            raise response.error
        else:
            assert response.is_done, "it still waits"
            response = response.value
    return response


def last(steps):
    """Return what steps end in; what they wait for must be done."""
    value = None
    while True:
        try:
            awaited = steps.send(value)
        except StopIteration as end:
            return end.value
        value = None if awaited is None else answered(awaited)
