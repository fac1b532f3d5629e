"""Policies: how a flat theta becomes actions."""

from fastes.policies.actions import ActionHead, make_action_head
from fastes.policies.custom import AnySpec, CustomPolicy, CustomSpec, check_model_memory, spec_for
from fastes.policies.spec import CUSTOM_POLICIES, POLICIES, PolicySpec, initial_theta, make_policy_spec

__all__ = [
    "CUSTOM_POLICIES",
    "POLICIES",
    "ActionHead",
    "AnySpec",
    "CustomPolicy",
    "CustomSpec",
    "PolicySpec",
    "check_model_memory",
    "initial_theta",
    "make_action_head",
    "make_policy_spec",
    "spec_for",
]
