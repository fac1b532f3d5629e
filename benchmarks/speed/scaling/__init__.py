"""What training takes on 1 to 10,000 workers: measured costs, a simulation fed with them, and its check against real runs."""
