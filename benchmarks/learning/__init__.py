"""Learning: returns of presets, and FastES compared with other algorithms on the same cores."""
