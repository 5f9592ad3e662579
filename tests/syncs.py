"""Who takes the outcome of syncs, for tests: one at a time."""


def told_each(done):
    """Return a ``Told`` that calls ``done(job, error)`` for each."""

    def told(jobs, error):
        while jobs:
            done(jobs.popleft(), error)

    return told
