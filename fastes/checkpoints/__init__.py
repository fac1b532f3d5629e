"""A training as a file: what is written, what is read, and what a file may say. docs/reference/checkpoint-format.md has it in words."""
