"""Speed: kernels, policies, training and start-up, each beside a baseline of the same run."""
