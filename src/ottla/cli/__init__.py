"""The ``ottla`` command. One module per command, imported only when it is the one typed."""
