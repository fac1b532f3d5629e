"""Tuned settings, one TOML file a family; fastes.settings.settings.presets reads them."""
