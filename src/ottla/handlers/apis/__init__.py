"""One file or folder per API, named as in the protocol; ``ottla.handlers.routes`` lists them."""
