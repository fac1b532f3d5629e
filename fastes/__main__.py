"""python -m fastes is the command line, and the command `fastes` is this module's main."""

import sys

from fastes import import_home


def main() -> int:
    """Run the command line. Ctrl-C during imports ends quietly, and `fastes doctor` runs even if another import fails."""
    try:
        run = import_home("cli.main").main
    except KeyboardInterrupt:
        return 130
    except Exception:
        if sys.argv[1:] != ["doctor"]:
            raise
        run = import_home("cli.doctor").main
    return int(run())


if __name__ == "__main__":
    sys.exit(main())
