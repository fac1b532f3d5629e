"""Files that a training leaves: run folder, learning curves, videos."""
