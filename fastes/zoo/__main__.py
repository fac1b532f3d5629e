"""python -m fastes.zoo is RL Baselines3 Zoo with FastES among its algorithms."""

import sys

from fastes import import_home

if __name__ == "__main__":
    sys.exit(import_home("zoo.launcher").main(sys.argv[1:]))
