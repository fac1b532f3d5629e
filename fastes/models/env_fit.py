"""Whether a policy fits an environment that it was not made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fastes.envs.closing import close_env
from fastes.envs.given.rebuild import check_for_workers
from fastes.envs.source import EnvSource
from fastes.errors import CheckpointMismatch
from fastes.policies.action_head import actions_in_words
from fastes.policies.custom_policy import AnySpec
from fastes.policies.images import values_in_words
from fastes.policies.layers import ImageConvolution
from fastes.policies.named_policies import BYTES, make_policy_spec
from fastes.policies.policy_keywords import IMAGE_POLICIES, head_from
from fastes.policies.policy_spec import PolicySpec, obs_shape_of, parts_of
from fastes.settings.settings import Settings


class Kind(NamedTuple):
    """The part of a training that stays while it learns: its policy, its settings, and the recipe's name in a race."""

    spec: AnySpec
    settings: Settings
    recipe: str = ""


def check_env_fits(source: EnvSource, kinds: Sequence[Kind], n_workers: int | None) -> None:
    """Raise CheckpointMismatch if a policy does not fit the environment that was passed; call `check_for_workers`."""
    env: Any = source() if source.vector_env is None else source.vector_env
    try:
        if source.vector_env is None:
            check_for_workers(env, n_workers)
        for number, kind in enumerate(kinds):
            if kind not in kinds[:number]:
                _check_kind_fits(source.name, env.observation_space, env.action_space, kind)
    finally:
        if source.vector_env is None:
            close_env(env, source.name)


def _check_kind_fits(name: str, observations: Any, actions: Any, kind: Kind) -> None:
    spec, kwargs = kind.spec, kind.settings.policy_kwargs
    shape, flattened = obs_shape_of(observations)
    head = spec.head and head_from(actions, kwargs)
    if shape == spec.obs_shape and isinstance(spec, PolicySpec) and kind.settings.policy in IMAGE_POLICIES:
        own = make_policy_spec(kind.settings.policy, observations, actions, kwargs).images
        if said := _misfit_of_images(own, spec.images, observations):
            raise CheckpointMismatch(f"env = {name!r} does not fit the policy: {said}")
    fits = spec.head is None or spec.head.fits(head)
    if (shape, flattened) != (spec.obs_shape, spec.flattened) or not fits:
        offered, wanted = (
            f"observations {each}{' that are flattened' if is_flattened else ''} and {actions_in_words(its_head)}"
            for each, is_flattened, its_head in ((shape, flattened, head), (spec.obs_shape, spec.flattened, spec.head))
        )
        raise CheckpointMismatch(f"env = {name!r} does not fit the policy: it has {offered}, the policy was made for {wanted}")
    if spec.parts and (own_parts := parts_of(observations)) != spec.parts:
        raise CheckpointMismatch(
            f"env = {name!r} does not fit the policy: its observations are {own_parts}, the policy was made for {spec.parts}"
        )


def _misfit_of_images(owns: Sequence[ImageConvolution], all_stored: Sequence[ImageConvolution], observations: Any) -> str:
    """Return how an environment's images differ from the policy's, in words; '' if they do not."""
    if len(owns) != len(all_stored):
        return f"its observations {observations} have {_counted(owns)}, the policy was made for {_counted(all_stored)}"
    for own, stored in zip(owns, all_stored, strict=True):
        if own != stored:
            return _misfit_of_image(own, values_in_words(observations, own.first), stored)
    return ""


def _counted(images: Sequence[ImageConvolution]) -> str:
    return {0: "no image", 1: "1 image"}.get(len(images), f"{len(images)} images")


def _misfit_of_image(own: ImageConvolution, shown: str, stored: ImageConvolution) -> str:
    """Return how an environment's image differs from the policy's, in words. `shown` is the range of its values."""
    if own.divisor == stored.divisor:
        place, expected = (
            f"{image.height} x {image.width} with {image.channels} channels in {image.planes} planes, from value {image.first} "
            "of an observation on"
            for image in (own, stored)
        )
        return f"its image is {place}, the policy was made for {expected}"
    divided = stored.divisor == BYTES
    expected = f"bytes from 0 to 255, which it divides by {BYTES}" if divided else "values that it takes as they are"
    return f"its image is {shown}, the policy was made for {expected}"
