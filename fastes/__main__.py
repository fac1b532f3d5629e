"""python -m fastes is the command line."""

import sys

from fastes.cli import main

if __name__ == "__main__":
    sys.exit(main())
