"""An environment that is given as an object: workers rebuild it, with the changes that were made in it."""
