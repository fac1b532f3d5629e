"""Reliability: training under faults."""
