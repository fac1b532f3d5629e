"""What a training leaves."""
