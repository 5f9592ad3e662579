"""An executor without threads, for units that only submit work."""

import asyncio


def do(work, done):
    """Do what was submitted, and tell of its end."""
    try:
        result = work()
    except OSError as error:
        done(None, error)
    else:
        done(result, None)


class InlineExecutor:
    """Does what is submitted in the next turn of the loop."""

    def submit(self, work, done, *, place=""):
        asyncio.get_running_loop().call_soon(do, work, done)
