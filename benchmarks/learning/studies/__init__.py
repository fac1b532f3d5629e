"""Studies of one question each, with a plot and a small table: `python -m benchmarks.learning.studies NAME --out DIR`."""
