"""Pools play the jobs of requests: in this process, in worker processes, in a vector environment, or on a Ray cluster."""
