"""Figures of papers that benchmarks of several kinds stand beside."""

from __future__ import annotations

# cores -> minutes until Humanoid's return is 6000 (Salimans et al. 2017)
HUMANOID_MINUTES = {18: 657.0, 1_440: 10.0}
