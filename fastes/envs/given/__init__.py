"""An environment that is given as an object: what was changed in it since it was made, and how workers get the same."""
