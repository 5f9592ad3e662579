"""A metadata store in another process, over a connection that both inherited."""
