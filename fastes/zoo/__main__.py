"""python -m fastes.zoo is RL Baselines3 Zoo with FastES among its algorithms."""

import sys

from fastes.zoo.launcher import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
