"""Studies of one question each, a command with a plot and a small table: `python -m benchmarks.studies NAME --out DIR`."""
