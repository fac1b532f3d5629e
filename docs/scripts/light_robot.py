"""Light colours for a robot of MuJoCo in README's pictures: `make pictures` gives this wrapper to `fastes gallery`."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco
import numpy as np

SKY, HORIZON = (196, 219, 240), (246, 249, 252)
TILES = (222, 227, 233), (198, 206, 216)
BODY, RED, AMBER = (0.16, 0.37, 0.66, 1.0), (0.85, 0.40, 0.24, 1.0), (0.95, 0.62, 0.25, 1.0)
RED_LIMBS, AMBER_LIMBS = ("bthigh", "bshin", "bfoot", "right_"), ("fthigh", "fshin", "ffoot", "left_")


class LightRobot(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Another sky, floor and robot than the model file's, which are dark. What the policy sees stays the same."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        unwrapped: Any = env.unwrapped
        paint(unwrapped.model)


def paint(model: mujoco.MjModel) -> None:
    """Change what is drawn alone."""
    for texture in range(model.ntex):
        height, width = int(model.tex_height[texture]), int(model.tex_width[texture])
        start = int(model.tex_adr[texture])
        pixels = model.tex_data[start : start + height * width * 3].reshape(height, width, 3)
        if model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
            share = np.linspace(0.0, 1.0, width)[np.arange(height) % width, None, None]
            pixels[:] = np.array(SKY) * (1 - share) + np.array(HORIZON) * share
        elif model.tex_type[texture] == mujoco.mjtTexture.mjTEXTURE_2D:
            odd = (np.arange(height)[:, None] * 2 // height + np.arange(width) * 2 // width) % 2
            pixels[:] = np.array(TILES)[odd]
    model.mat_reflectance[:], model.mat_specular[:] = 0.0, 0.0
    model.light_diffuse[:], model.light_specular[:], model.vis.headlight.diffuse[:] = 0.6, 0.0, 0.4
    model.vis.headlight.ambient[:] = 0.3
    model.light_castshadow[:] = 0  # the light stays behind, and with it shadows
    model.vis.quality.offsamples = 8  # smooth edges
    for geom in range(model.ngeom):
        name = model.geom(geom).name
        if name == "floor":
            model.geom_rgba[geom] = 1.0
        else:
            limb = RED if name.startswith(RED_LIMBS) else AMBER if name.startswith(AMBER_LIMBS) else BODY
            model.geom_rgba[geom], model.geom_matid[geom] = limb, -1  # a material's texture would darken it
