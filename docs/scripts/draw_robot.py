"""Draw docs/pictures/half_cheetah.gif: a trained HalfCheetah-v5 runs and the camera follows. Run by `make robot`.

python docs/scripts/draw_robot.py                              # trains first: a minute or two
python docs/scripts/draw_robot.py --run runs/HalfCheetah-v5/1  # plays the best.zip of a run folder

Needs pip install '.[mujoco,plots]' and, on a machine without graphics drivers, EGL (apt-get install libegl1).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is imported

import gymnasium
import mujoco
from PIL import Image

from fastes import FastES

PICTURE = Path(__file__).parents[1] / "pictures" / "half_cheetah.gif"
ENV = "HalfCheetah-v5"
WIDTH, HEIGHT, FINER = 420, 236, 2  # pixels; each is the mean of FINER x FINER
FIRST_STEP, STEPS = 100, 140  # it runs by then; 7 seconds
COLOURS = 64  # few, so that the file is small
LONGER = 10  # the floor, than the model file has it
SKY, HORIZON = (196, 219, 240), (246, 249, 252)
TILES = (222, 227, 233), (198, 206, 216)
BODY, HIND_LEG, FORE_LEG = (0.16, 0.37, 0.66, 1.0), (0.85, 0.40, 0.24, 1.0), (0.95, 0.62, 0.25, 1.0)


def train(seed: int, runs: Path) -> Path:
    """The preset's whole budget; returns the run folder."""
    command = ["train", ENV, "--seed", str(seed), "--target-return", "none", "--runs", str(runs), "--quiet"]
    subprocess.run([sys.executable, "-m", "fastes", *command], check=True)
    return runs / ENV / "1"


def paint(model: mujoco.MjModel) -> None:
    """Another sky, floor and robot than the model file's, which are dark."""
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
    model.mat_texrepeat[:] *= LONGER  # tiles as large as before, on a floor that a fast one does not leave
    for geom in range(model.ngeom):
        name = model.geom(geom).name
        if name != "floor":
            leg = name.startswith(("bthigh", "bshin", "bfoot")), name.startswith(("fthigh", "fshin", "ffoot"))
            model.geom_rgba[geom] = HIND_LEG if leg[0] else FORE_LEG if leg[1] else BODY
        else:
            model.geom_size[geom, :2] *= LONGER
            model.geom_rgba[geom] = 1.0


def camera(model: mujoco.MjModel) -> mujoco.MjvCamera:
    """Beside the torso, wherever that goes."""
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_TRACKING
    view.trackbodyid = model.body("torso").id
    view.distance, view.azimuth, view.elevation = 2.3, 68.0, -10.0
    return view


def frames_of(trained: FastES, seed: int) -> tuple[list[Image.Image], float, float]:
    """Frames of one noise-free episode from FIRST_STEP on, its return, and the seconds that a step takes."""
    env: Any = gymnasium.make(ENV)
    model, data = env.unwrapped.model, env.unwrapped.data
    paint(model)
    model.vis.global_.offwidth, model.vis.global_.offheight = WIDTH * FINER, HEIGHT * FINER
    view, frames, total, ended, step = camera(model), [], 0.0, False, 0
    observation, _ = env.reset(seed=seed)
    with mujoco.Renderer(model, HEIGHT * FINER, WIDTH * FINER) as renderer:
        while not ended:
            if FIRST_STEP <= step < FIRST_STEP + STEPS:
                renderer.update_scene(data, view)
                frames.append(Image.fromarray(renderer.render()).resize((WIDTH, HEIGHT), Image.Resampling.BOX))
            action, _ = trained.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended, step = total + float(reward), terminated or truncated, step + 1
    return frames, total, float(env.unwrapped.dt)


def write_gif(path: Path, frames: list[Image.Image], seconds: float) -> None:
    """One palette for all frames, and no dithering: what stands still then costs nothing."""
    sample = Image.new("RGB", (WIDTH, HEIGHT * 8))
    for number in range(8):
        sample.paste(frames[number * len(frames) // 8], (0, HEIGHT * number))
    palette = sample.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(path, save_all=True, append_images=rest, duration=round(1000 * seconds), loop=0, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, help="a run folder; without it HalfCheetah-v5 is trained")
    parser.add_argument("--train-seed", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the episode")
    parser.add_argument("--out", type=Path, default=PICTURE)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        trained = FastES.load((args.run or train(args.train_seed, Path(runs))) / "best.zip")
    frames, total, seconds = frames_of(trained, args.seed)
    write_gif(args.out, frames, seconds)
    print(f"{args.out.name}: return {total:.0f}, {len(frames)} frames, {args.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
