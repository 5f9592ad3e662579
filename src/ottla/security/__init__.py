"""Who a client is, and how it proves that. Pure: no sockets, no clock, no randomness of its own."""
