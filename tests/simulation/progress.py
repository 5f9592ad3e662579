"""Says how much a long run has lived until now: who ends the run keeps what it has found."""

PROGRESS_SECONDS = 3600.0
"""Simulated ones, between two lines."""


def tell_progress(results):
    """Print a line if the last of ``results`` has made another simulated hour full."""
    before, after = (sum(one["seconds"] for one in some) for some in (results[:-1], results))
    if before // PROGRESS_SECONDS != after // PROGRESS_SECONDS:
        whole = sum(not one["problems"] for one in results)
        print(f"{after / 3600:.1f} hours: {whole} of {len(results)} worlds are whole", flush=True)
