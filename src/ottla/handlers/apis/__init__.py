"""A file or folder for each API, by its protocol name. ``ottla.handlers.routes`` is the table."""
