"""Policies of other libraries as models that go on from them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, cast

from fastes.envs.source import EnvArgument, make_env_source
from fastes.errors import shown
from fastes.model import FastES
from fastes.models.parameters import theta_with
from fastes.policies.action_head import ActionHead
from fastes.weights.arrays import network_of_arrays, network_of_file
from fastes.weights.network import Network, Statistics, statistics_or_none
from fastes.weights.sb3_actors import is_sb3, network_of_sb3, statistics_of_vec_normalize

_OF_THE_SOURCE = ("policy", "policy_kwargs", "normalize_obs", "obs_columns", "obs_clip", "obs_std_floor")


def import_policy(
    source: Any,
    env: EnvArgument,
    *,
    activation_fn: Any = None,
    outputs: str | None = None,
    mean: Any = None,
    std: Any = None,
    clip: float | None = None,
    vec_normalize: Any = None,
    **arguments: Any,
) -> FastES:
    """A model with the policy that another library has trained: it acts as that does without noise, and can go on learning.

    >>> import numpy as np
    >>> from fastes import import_policy
    >>> model = import_policy(np.array([[0.0, 0.0, -1.0, -1.0], [0.0, 0.0, 1.0, 1.0]]), "CartPole-v1", seed=0)
    >>> model.evaluate(3).mean > 150
    True

    source:
        - a model of SB3's PPO, A2C, SAC, TD3, DDPG, DQN or sb3-contrib's ARS, TRPO, TQC, RecurrentPPO, or its policy;
        - a torch.nn.Sequential of dense layers, or of convolutions and dense layers;
        - a dict of arrays or tensors: `policy.to_arrays()` of a model; a state_dict of any of these, if it has dense layers
          alone; or `layers.0.weight` (outputs, inputs), `layers.0.bias` (outputs,), `layers.1.weight` and so on;
        - (weight, mean, std) as ARS's authors' code saves it, or one weight (outputs, inputs);
        - the path of a .npz or .npy file with such arrays. No code of a file is run: files that hold objects are refused.
    env: the environment that it acts in, as FastES takes it.
    activation_fn: between layers, 'tanh', 'relu' or 'elu', for sources that do not say it.
    outputs: what the last layer's outputs are, for sources that do not say it: 'actions' (clipped to their bounds), 'tanh'
        (their tanh spans the bounds), 'unit' (-1 to 1 spans the bounds), 'logits' (of choices).
    mean, std: of observations, (n,), which reach the policy as (observation - mean) / std. clip: then clipped to +- this; None
        for not at all.
    vec_normalize: SB3's VecNormalize that has these statistics; without, that of a model is used, unless env normalises itself.
    arguments: of FastES, such as seed, n_workers or a setting. The statistics stay as they are, unless obs_freeze_after=0 has
        them go on with training.

    Raises ValueError for shapes that do not fit each other or the environment, and for networks that no policy here can be, and
    TypeError for other sources.
    """
    if odd := [name for name in _OF_THE_SOURCE if name in arguments]:
        raise TypeError(f"{odd[0]} = {arguments[odd[0]]!r} follows from the policy that is imported: leave it out")
    statistics = _statistics(mean, std, clip, vec_normalize)
    network = _network_of(source, activation_fn, outputs, statistics)
    if network.statistics is not None and _normalizes(env):
        if not is_sb3(source) or statistics is not None:
            raise ValueError(
                f"{shown(env)} normalises observations by itself, and the policy would do so again by mean and std: pass an "
                "environment that does not, such as its id"
            )
        network = replace(network, statistics=None)  # those of an algorithm whose VecNormalize was trained with
    model = _model(network, env, network.has_bias, arguments)
    try:
        fitted = _fitted(network, model)
        if fitted.has_bias and not network.has_bias:  # of bounds whose middle is not 0
            model.close()
            model = _model(network, env, True, {**arguments, "seed": model.seed})
        spec, called = model.policy_spec, ("import_policy()", "exact_match")
        normalizer, of = model.normalizer, fitted.statistics
        if of is not None:
            normalizer = normalizer.given(of.mean, of.std, of.count)
        model.set_theta(theta_with(spec, model.theta, fitted.parameters(), True, called), normalizer)
    except BaseException:
        model.close()
        raise
    return model


def _normalizes(env: EnvArgument) -> bool:
    """Whether it is a vector environment whose wrappers do."""
    vector_env = make_env_source(env).vector_env if hasattr(env, "num_envs") else None
    return vector_env is not None and bool(vector_env.normalizes)


def _statistics(mean: Any, std: Any, clip: float | None, vec_normalize: Any) -> Statistics | None:
    if vec_normalize is not None:
        if mean is not None or std is not None or clip is not None:
            raise TypeError("vec_normalize has mean, std and clip: leave these out")
        return statistics_of_vec_normalize(vec_normalize)
    return statistics_or_none(mean, std, clip)


def _network_of(source: Any, activation_fn: Any, outputs: str | None, statistics: Statistics | None) -> Network:
    if isinstance(source, (str, os.PathLike)):
        return network_of_file(source, activation_fn=activation_fn, outputs=outputs, statistics=statistics)
    if is_sb3(source):
        if activation_fn is not None:
            raise TypeError(f"activation_fn = {activation_fn!r}: {type(source).__name__} has its own; leave it out")
        return network_of_sb3(source, outputs, statistics)
    if isinstance(source, FastES):
        raise TypeError("import_policy() got a FastES model: use set_parameters, or save and load")
    return network_of_arrays(source, activation_fn, outputs, statistics)


def _model(network: Network, env: EnvArgument, use_bias: bool, arguments: dict[str, Any]) -> FastES:
    settings: dict[str, Any] = {"obs_freeze_after": 1, **network.settings(), **arguments}
    return FastES(env, network.policy, policy_kwargs=network.policy_kwargs(use_bias), **settings)


def _fitted(network: Network, model: FastES) -> Network:
    """The network for the model's action space; ValueError where the environment is another one."""
    spec = model.policy_spec
    if network.front is None and spec.obs_size != network.inputs:
        raise ValueError(
            f"the policy's first weight, {network.weights[0].shape}, reads {network.inputs} observation values, the "
            f"environment has {spec.obs_size}: expected (outputs, inputs), as torch has it, of a policy for this environment"
        )
    return network.fitted(cast(ActionHead, spec.head))  # named policies have one
