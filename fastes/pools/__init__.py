"""Who runs the jobs."""
