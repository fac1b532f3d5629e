"""What the operating system gives and takes: signals, forks, descriptors, memory, files, consoles."""
