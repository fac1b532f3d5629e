"""Several starts: what they are made of, which one goes on, and how a checkpoint holds them."""
