"""Environments that come along, registered by envs/import_hook.py."""
