"""How MuJoCo's environments are drawn: a camera that follows the robot, at a cost that software rendering can bear."""

from __future__ import annotations

import inspect
from typing import Any

_CAMERA_ARGUMENTS = frozenset({"camera_id", "camera_name", "default_camera_config"})
_TRACKING_MODES = (1, 2)  # mjCAMLIGHT_TRACK, mjCAMLIGHT_TRACKCOM: where a camera is goes with its body
_TRACKING, _FIXED = 1, 2  # of mjtCamera: a free camera that follows a body, a camera of the model
# MuJoCo's defaults and ours: without a GPU a frame takes a quarter of the time
_PLANE = 0  # of mjtGeom
_FLOOR = 1000.0  # metres from the middle to a side
_QUALITY = {"offsamples": (4, 0), "shadowsize": (4096, 1024)}


def follow_robot(env: Any, kwargs: Any) -> None:
    """Let a MuJoCo environment that was just built be drawn by a camera that moves with its robot, where its model has one.

    Gymnasium 1.4 looks at the place where the robot starts.

    kwargs: what the environment was made with; a camera that was chosen there, or in the environment's own code, stays.

    Anything else but a MujocoEnv is left alone.
    """
    env = env.unwrapped
    renderer, model = getattr(env, "mujoco_renderer", None), getattr(env, "model", None)
    if renderer is None or not hasattr(model, "cam_mode") or not hasattr(renderer, "default_cam_config"):
        return
    _lighten(model)
    _lay_floors(model)
    config = dict(renderer.default_cam_config or {})
    if _CAMERA_ARGUMENTS & set(kwargs) or "type" in config or _chosen(env, renderer.default_cam_config):
        return
    camera = _tracking_camera(model)
    if camera is not None:
        renderer.camera_id = camera  # of pictures; a window takes the configuration
        renderer.default_cam_config = {**config, "type": _FIXED, "fixedcamid": camera}
    elif config.get("trackbodyid", 0) > 0:
        renderer.camera_id = None
        renderer.default_cam_config = {**config, "type": _TRACKING}


def _chosen(env: Any, config: Any) -> bool:
    """Whether a factory, or a class of one's own, has said which camera it wants."""
    if getattr(env, "camera_id", None) is not None or getattr(env, "camera_name", None) is not None:
        return True
    parameter = inspect.signature(type(env)).parameters.get("default_camera_config")
    return parameter is not None and config is not parameter.default


def _tracking_camera(model: Any) -> int | None:
    """The camera that follows a body; one that is named so before others."""
    cameras = [number for number in range(model.ncam) if model.cam_mode[number] in _TRACKING_MODES]
    return min(cameras, key=lambda number: "track" not in model.camera(number).name.lower(), default=None)


def _lighten(model: Any) -> None:
    """Fewer samples and a smaller shadow map, unless the model asks for others than MuJoCo's defaults."""
    for name, (default, ours) in _QUALITY.items():
        if getattr(model.vis.quality, name) == default:
            setattr(model.vis.quality, name, ours)


def _lay_floors(model: Any) -> None:
    """Floors that a fast robot does not run off: HalfCheetah's ends after 40 m. What it stands on has no end in either case."""
    for number in range(model.ngeom):
        size, material = model.geom_size[number], model.geom_matid[number]
        if model.geom_type[number] == _PLANE and (size[:2] > 0.0).all():
            longer = (_FLOOR / size[:2]).clip(min=1.0)
            size[:2] *= longer
            if material >= 0 and not model.mat_texuniform[material]:
                model.mat_texrepeat[material] *= longer  # tiles as large as before
