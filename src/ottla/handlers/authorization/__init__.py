"""Who may do what: for each API a guard in front of its handler. Loaded only with an authorizer."""
