"""Tuned settings, one TOML file a family; fastes.settings.preset_loader reads them."""
