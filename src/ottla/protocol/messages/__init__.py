"""One module per API, request and response together. Reach them through ``ottla.protocol.apis``."""
