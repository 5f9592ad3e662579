"""The options that name the other side of a copy or a comparison; see ``second_cluster``."""

from ottla.cli.arguments import Parser, not_empty


def add_second_options(parser: Parser) -> None:
    """Declare where the second of two things is."""
    group = parser.add_argument_group("the second one's cluster, if it is another")
    group.add_argument(
        "--other-bootstrap",
        type=not_empty,
        metavar="HOST:PORT,...",
        help="its address; settings as the first's",
    )
    group.add_argument(
        "--other-config",
        type=not_empty,
        metavar="FILE",
        help="its client settings, instead of the first's",
    )
