"""What holds a training's state: a model as callbacks know it, its copies, what of it is in a file."""
