"""A disk that tells the calls of the loop from those of jobs, and the executor it goes with."""

from ottla.env.executor import ManualExecutor
from ottla.env.faulty_disk import FaultyDisk


class LoopDisk(FaultyDisk):
    """Notes what the loop asks of it."""

    def __init__(self, inner):
        super().__init__(inner)
        self.is_in_job, self.by_loop = False, []

    def enter(self, call, path):
        if not self.is_in_job:
            self.by_loop.append((call, path))
        return super().enter(call, path)


class LoopDiskJobs(ManualExecutor):
    """Lets the disk know what is done by a job."""

    def __init__(self, disk):
        super().__init__()
        self._disk = disk

    def submit(self, work, done, **options):
        def job():
            self._disk.is_in_job = True
            try:
                return work()
            finally:
                self._disk.is_in_job = False

        super().submit(job, done)
