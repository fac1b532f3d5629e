"""Learning: returns of presets, and FastES beside other algorithms on the same cores."""
