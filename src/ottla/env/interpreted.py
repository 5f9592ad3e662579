"""The one name of Cython that ``ottla.env.sync_loop`` uses where Cython is not installed."""

compiled = False
