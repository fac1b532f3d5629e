"""Import of policies that other libraries have trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from fastes.envs.source import EnvArgument, make_env_source
from fastes.errors import shown
from fastes.model import FastES
from fastes.models.parameters import theta_with
from fastes.policies.action_head import ActionHead
from fastes.weights.network import Network, Statistics, statistics_or_none
from fastes.weights.sources import is_sb3, network_of, statistics_of_vec_normalize

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
    """Make a model of a policy that another library has trained. It acts as the source does without noise, and can learn.

    >>> import numpy as np
    >>> from fastes import import_policy
    >>> model = import_policy(np.array([[0.0, 0.0, -1.0, -1.0], [0.0, 0.0, 1.0, 1.0]]), "CartPole-v1", seed=0)
    >>> model.evaluate(3).mean > 150
    True

    Args:
        source: One of

            - a model of SB3's PPO, A2C, SAC, TD3, DDPG, DQN or sb3-contrib's ARS, TRPO, TQC, RecurrentPPO, or its policy;
            - a torch.nn.Sequential of dense layers, or of convolutions and dense layers;
            - a dict of arrays or tensors: `policy.to_arrays()` of a model; a state_dict of any of these, if it has dense layers
              alone; or `layers.0.weight` (outputs, inputs), `layers.0.bias` (outputs,), `layers.1.weight` and so on;
            - (weight, mean, std) as ARS's authors' code saves it, or one weight (outputs, inputs);
            - the path of a .npz or .npy file with such arrays. No code of a file runs: files that hold objects are refused.
        env: The environment that it acts in, as FastES takes it.
        activation_fn: Activation between layers, 'tanh', 'relu' or 'elu', for sources that do not say it.
        outputs: Meaning of the last layer's outputs, for sources that do not say it: 'actions' (clipped to their bounds),
            'tanh' (their tanh spans the bounds), 'unit' (-1 to 1 spans the bounds), 'logits' (of choices).
        mean, std: Statistics of observations, (n,), which reach the policy as (observation - mean) / std.
        clip: Limit of these, in standard deviations; None for none.
        vec_normalize: SB3's VecNormalize that has these statistics; None for that of a model, unless env normalises itself.
        arguments: Those of FastES, such as seed, n_workers or a setting. Statistics stay as they are, unless
            obs_freeze_after=0 lets training update them.

    Raises:
        ValueError: Shapes that do not fit each other or the environment, or a network that no policy here can represent.
        TypeError: A source of another type.
    """
    if odd := [name for name in _OF_THE_SOURCE if name in arguments]:
        raise TypeError(f"{odd[0]} = {arguments[odd[0]]!r} follows from the policy that is imported: leave it out")
    if isinstance(source, FastES):
        raise TypeError("import_policy() got a FastES model: use set_parameters, or save and load")
    statistics = _statistics(mean, std, clip, vec_normalize)
    network = network_of(source, activation_fn, outputs, statistics)
    if network.statistics is not None and _normalizes(env):
        if not is_sb3(source) or statistics is not None:
            raise ValueError(
                f"{shown(env)} normalises observations itself, and the policy would do so again by mean and std: pass an "
                "environment that does not, such as its id"
            )
        network = replace(network, statistics=None)  # the model's VecNormalize, which env has as well
    model = _model(network, env, network.has_bias, arguments)
    try:
        fitted = _fitted(network, model)
        if fitted.has_bias and not network.has_bias:  # it comes from bounds whose middle is not 0
            model.close()
            model = _model(network, env, True, {**arguments, "seed": model.seed})
        _take(model, fitted)
    except BaseException:
        model.close()
        raise
    return model


def _take(model: FastES, network: Network) -> None:
    """Give a model the parameters and statistics of a network that was fitted to it."""
    called, of, normalizer = ("import_policy()", "exact_match"), network.statistics, model.normalizer
    if of is not None:
        normalizer = normalizer.given(of.mean, of.std, of.count)
    model.set_theta(theta_with(model.policy_spec, model.theta, network.parameters(), True, called), normalizer)


def _normalizes(env: EnvArgument) -> bool:
    """Whether env is a vector environment whose wrappers normalise observations."""
    return hasattr(env, "num_envs") and make_env_source(env).normalizes_obs


def _statistics(mean: Any, std: Any, clip: float | None, vec_normalize: Any) -> Statistics | None:
    if vec_normalize is not None:
        if mean is not None or std is not None or clip is not None:
            raise TypeError("vec_normalize has mean, std and clip: leave these out")
        return statistics_of_vec_normalize(vec_normalize)
    return statistics_or_none(mean, std, clip)


def _model(network: Network, env: EnvArgument, use_bias: bool, arguments: dict[str, Any]) -> FastES:
    settings: dict[str, Any] = {"obs_freeze_after": 1, **network.settings(), **arguments}
    return FastES(env, network.policy, policy_kwargs=network.policy_kwargs(use_bias), **settings)


def _fitted(network: Network, model: FastES) -> Network:
    """Return the network for the model's action space; ValueError if the environment is another one."""
    spec = model.policy_spec
    if network.front is None and spec.obs_size != network.inputs:
        raise ValueError(
            f"the policy's first weight, {network.weights[0].shape}, reads {network.inputs} observation values, the "
            f"environment has {spec.obs_size}: expected (outputs, inputs), as torch has it, of a policy for this environment"
        )
    return network.fitted(cast(ActionHead, spec.head))  # named policies have one
