"""Reports during a training: callbacks, console, progress bar, logs, warnings."""
