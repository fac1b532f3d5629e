"""How a flat theta becomes actions."""
