"""Measurements of FastES: kernels, throughput, learning, start-up. Each module is a command; README.md says what they mean."""
