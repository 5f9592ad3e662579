"""An executor without threads, for units that only submit work."""

import asyncio


class InlineExecutor:
    """Does what is submitted in the next turn of the loop."""

    def submit(self, work, done, *, place=""):
        def job():
            try:
                result = work()
            except OSError as error:
                done(None, error)
            else:
                done(result, None)

        asyncio.get_running_loop().call_soon(job)
