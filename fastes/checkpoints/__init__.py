"""A training as a file: what is written, what is read, what a file may say. In words: docs/reference/checkpoint-format.md"""
