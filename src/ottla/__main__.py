"""``python -m ottla`` is the ``ottla`` command."""

from ottla.cli.entry import main

if __name__ == "__main__":
    main()
