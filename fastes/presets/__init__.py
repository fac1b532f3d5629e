"""Tuned settings, one TOML file a family; fastes.settings.presets reads them."""
