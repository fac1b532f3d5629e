"""Speed: kernels, policies, training and start-up, each with a baseline of the same run."""
