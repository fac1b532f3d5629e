"""Draw docs/pictures/half_cheetah.gif or humanoid.gif: a trained robot runs, the camera follows. `make pictures`: the first.

python docs/scripts/draw_robot.py                              # trains HalfCheetah-v5 first: a minute or two
python docs/scripts/draw_robot.py --run runs/HalfCheetah-v5/1  # plays the best.zip of a run folder
python docs/scripts/draw_robot.py --env Humanoid-v5 --run runs/Humanoid-v5/1  # whose training takes hours

Needs pip install '.[mujoco,plots]' and, on a machine without graphics drivers, EGL: fastes doctor says how.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is imported

import gymnasium
import mujoco
from PIL import Image

from fastes import FastES

PICTURES = Path(__file__).parents[1] / "pictures"
WIDTH, HEIGHT, FINER = 420, 236, 2  # pixels; each is the mean of FINER x FINER
SECONDS = 7.0
COLOURS = 64  # few, so that the file is small
LONGER = 10  # the floor, than the model file has it
SKY, HORIZON = (196, 219, 240), (246, 249, 252)
TILES = (222, 227, 233), (198, 206, 216)
BODY, RED, AMBER = (0.16, 0.37, 0.66, 1.0), (0.85, 0.40, 0.24, 1.0), (0.95, 0.62, 0.25, 1.0)


class Robot(NamedTuple):
    """How one is shown.

    first_step: it runs by then. every: steps from a frame to the next. distance, azimuth, elevation: of the camera from the
    torso, m and degrees. tiles: in a length, as multiples of the model file's. red, amber: how names of limbs in these
    colours begin.
    """

    file: str
    first_step: int
    every: int
    distance: float
    azimuth: float
    elevation: float
    tiles: float
    red: tuple[str, ...]
    amber: tuple[str, ...]


ROBOTS = {
    "HalfCheetah-v5": Robot(
        file="half_cheetah.gif",
        first_step=100,
        every=1,
        distance=2.3,
        azimuth=68.0,
        elevation=-10.0,
        tiles=1.0,
        red=("bthigh", "bshin", "bfoot"),
        amber=("fthigh", "fshin", "ffoot"),
    ),
    "Humanoid-v5": Robot(
        file="humanoid.gif",
        first_step=100,
        every=4,
        distance=3.2,
        azimuth=68.0,
        elevation=-8.0,
        tiles=0.33,
        red=("right_",),
        amber=("left_",),
    ),
}


def train(env: str, seed: int, runs: Path) -> Path:
    """The preset's whole budget; returns the run folder."""
    command = ["train", env, "--seed", str(seed), "--target-return", "none", "--runs", str(runs), "--quiet"]
    subprocess.run([sys.executable, "-m", "fastes", *command], check=True)
    return runs / env / "1"


def paint(model: mujoco.MjModel, robot: Robot) -> None:
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
    model.light_castshadow[:] = 0  # the light stays behind, and with it shadows
    model.mat_texrepeat[:] *= LONGER * robot.tiles  # a floor that a fast one does not leave
    for geom in range(model.ngeom):
        name = model.geom(geom).name
        if name != "floor":
            limb = RED if name.startswith(robot.red) else AMBER if name.startswith(robot.amber) else BODY
            model.geom_rgba[geom], model.geom_matid[geom] = limb, -1  # a material's texture would darken it
        else:
            model.geom_size[geom, :2] *= LONGER
            model.geom_rgba[geom] = 1.0


def camera(model: mujoco.MjModel, robot: Robot) -> mujoco.MjvCamera:
    """Beside the torso, wherever that goes."""
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_TRACKING
    view.trackbodyid = model.body("torso").id
    view.distance, view.azimuth, view.elevation = robot.distance, robot.azimuth, robot.elevation
    return view


def frames_of(trained: FastES, name: str, seed: int) -> tuple[list[Image.Image], float, float]:
    """Frames of one noise-free episode from the robot's first_step on, its return, and the seconds that a frame takes."""
    env: Any = gymnasium.make(name)
    robot, dt = ROBOTS[name], float(env.unwrapped.dt)
    end = robot.first_step + round(SECONDS / dt)
    model, data = env.unwrapped.model, env.unwrapped.data
    paint(model, robot)
    model.vis.global_.offwidth, model.vis.global_.offheight = WIDTH * FINER, HEIGHT * FINER
    view, frames, total, ended, step = camera(model, robot), [], 0.0, False, 0
    observation, _ = env.reset(seed=seed)
    with mujoco.Renderer(model, HEIGHT * FINER, WIDTH * FINER) as renderer:
        while not ended:
            if robot.first_step <= step < end and (step - robot.first_step) % robot.every == 0:
                renderer.update_scene(data, view)
                frames.append(Image.fromarray(renderer.render()).resize((WIDTH, HEIGHT), Image.Resampling.BOX))
            action, _ = trained.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended, step = total + float(reward), terminated or truncated, step + 1
    if step < end:
        raise SystemExit(f"the episode of --seed {seed} ended after {step} steps, of {end} that are drawn: give another --seed")
    return frames, total, robot.every * dt


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
    parser.add_argument("--env", choices=ROBOTS, default="HalfCheetah-v5", help="default: %(default)s")
    parser.add_argument("--run", type=Path, help="a run folder of it; without, it is trained")
    parser.add_argument("--train-seed", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the episode")
    parser.add_argument("--out", type=Path, help="default: its file in docs/pictures")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        trained = FastES.load((args.run or train(args.env, args.train_seed, Path(runs))) / "best.zip")
    frames, total, seconds = frames_of(trained, args.env, args.seed)
    out = args.out or PICTURES / ROBOTS[args.env].file
    write_gif(out, frames, seconds)
    print(f"{out.name}: return {total:.0f}, {len(frames)} frames, {out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
