"""The operating system: signals, forks, standard streams, limits, files, installed libraries."""
