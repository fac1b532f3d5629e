"""Policies: how a flat theta becomes actions."""

from fastes.policies.actions import ActionHead, make_action_head
from fastes.policies.spec import POLICIES, PolicySpec, initial_theta, make_policy_spec

__all__ = ["POLICIES", "ActionHead", "PolicySpec", "initial_theta", "make_action_head", "make_policy_spec"]
