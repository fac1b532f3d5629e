"""The pool of a Ray cluster: one actor a node, each with an ordinary pool of worker processes."""
