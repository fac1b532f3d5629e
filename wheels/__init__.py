"""Wheels: built, repaired and proven where there is no compiler. `python -m wheels --help`; `make wheels` brings its tools."""
