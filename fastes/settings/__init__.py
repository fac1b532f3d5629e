"""The settings of a training, and tuned values of them."""
