"""From an env argument to a factory that builds the environment in any process. `source.py` has the way in."""
