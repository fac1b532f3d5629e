"""The pool of a Ray cluster: one actor per node, each with an ordinary pool of worker processes."""
