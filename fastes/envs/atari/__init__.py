"""Atari games as the papers play them: small grey screens, frames that are skipped, raw scores."""
