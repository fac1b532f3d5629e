"""Parts of reports: medians with intervals, thresholds, pictures."""
