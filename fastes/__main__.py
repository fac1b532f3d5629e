"""python -m fastes is the command line, and the command `fastes` is this module's main."""

import sys

from fastes import import_home


def main() -> int:
    """Ctrl-C while modules are imported ends quietly, too."""
    try:
        run = import_home("cli.main").main
    except KeyboardInterrupt:
        return 130
    return int(run())


if __name__ == "__main__":
    sys.exit(main())
