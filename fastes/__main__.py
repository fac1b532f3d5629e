"""python -m fastes is the command line."""

import sys

from fastes import import_home

if __name__ == "__main__":
    sys.exit(import_home("cli.main").main())
