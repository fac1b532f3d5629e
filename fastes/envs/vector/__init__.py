"""Vector environments that are driven as they are."""
