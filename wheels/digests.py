"""Prints, as JSON, what the golden trainings end with on each kernel variant that this CPU runs. Copied beside the tests."""

from __future__ import annotations

import json

from golden_trainings import CASES, digest_of, trained

from fastes import _core

found = {}
for variant in _core.available_variants():
    _core.use_variant(variant)
    found[variant] = {case: digest_of(trained(case, 0)) for case in CASES}
print(json.dumps(found))
