"""What reports are made of: medians with intervals, thresholds, pictures."""
