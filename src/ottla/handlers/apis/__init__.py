"""One file per API, named as the protocol names it. ``ottla.handlers.routes`` is their table."""
