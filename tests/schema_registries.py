"""A clock for tests of schema registries: pauses take no time."""


class Clock:
    """Goes on only by its pauses, and by ``advance``."""

    def __init__(self):
        self.now = 100.0
        self.slept = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept += seconds
