"""What a training ends with: snapshots of its good parts, and the race between them."""
