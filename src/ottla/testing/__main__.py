"""``python -m ottla.testing``: a broker for tests in any language, with its control endpoint.

Prints one line of JSON when it serves, and ends when its input does, or at SIGTERM and ^C.
"""

import json
import signal
import sys
from contextlib import suppress

from ottla.testing.broker import Broker
from ottla.testing.schema_registry import SchemaRegistry


def main() -> None:
    """Run until nobody is there any more."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), Broker(control=True) as broker, SchemaRegistry() as registry:
        said = {
            "bootstrap": broker.bootstrap,
            "control": broker.control_url,
            "schema_registry": registry.url,
        }
        print(json.dumps(said), flush=True)  # noqa: T201 - what it is for
        sys.stdin.read()


if __name__ == "__main__":
    main()
