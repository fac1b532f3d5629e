"""Time of a training on 1 to 64 cores: measured costs, a simulation fed with them, and its check against real runs."""
