"""Environments of FastES, registered by envs/import_hook.py."""
