"""What a training shows while it goes on."""
