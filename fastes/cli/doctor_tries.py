"""The tries of `fastes doctor`, each in its own process, because a driver may crash.

Each function returns its finding in words, or raises an exception.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

_FRAMES = 5
_GL_RENDERER = 0x1F01  # OpenGL's number for the name of what draws


def answer(name: str) -> None:
    """Try one thing, write a line of JSON to stdout, {"works": ..., "text": ...}, and end the process at once.

    Some drivers crash or complain when a process that has drawn ends normally.
    """
    try:
        works, text = True, TRIES[name]()
    except BaseException as error:
        works, text = False, f"{type(error).__name__}: {error}"
    print(f"\n{json.dumps({'works': works, 'text': text})}", flush=True)
    os._exit(0)


def kernels() -> str:
    """Check that all variants of the kernels that this processor runs give the same bits."""
    import numpy as np

    from fastes import _core

    chosen, found = _core.variant(), {}
    for name in _core.available_variants():
        _core.use_variant(name)
        table, theta, out = (np.zeros(4096, np.float32) for _ in range(3))
        _core.normal_fill(table, 1)
        _core.normal_fill(theta, 2)
        _core.perturb(out, theta, table, 0, 0.1)
        found[name] = out.tobytes()
    first, *others = found  # the narrowest: 'baseline', or 'neon'
    if wrong := [name for name in others if found[name] != found[first]]:
        raise RuntimeError(f"{', '.join(wrong)} and {first} give other bits: set FASTES_KERNELS={first} and report this")
    rest = " and ".join(name for name in found if name != chosen)
    return f"{chosen}, with the same bits as {rest}" if rest else chosen


def training() -> str:
    """Check that a worker process plays the same as this one."""
    from fastes.model import FastES

    found = []
    for n_workers in (1, 0):
        with FastES("CartPole-v1", preset="default", population_size=4, seed=0, n_workers=n_workers) as model:
            model.learn(1)
            found.append(model.theta.tobytes())
    if found[0] != found[1]:
        raise RuntimeError("a worker process and this one trained CartPole-v1 to other parameters: please report this")
    return "CartPole-v1, with the same bits in a worker process as without one"


def shared_memory() -> str:
    """Allocate shared memory."""
    from fastes.rollout.shared_block import anonymous_file, open_nameless

    os.close(anonymous_file(1 << 20))
    fd, way = open_nameless()
    os.close(fd)
    return way


def mujoco() -> str:
    """Draw a frame as `fastes play --video` does; MUJOCO_GL says how."""
    env, frame = _drawn("InvertedPendulum-v5")
    by = import_module("OpenGL.GL").glGetString(_GL_RENDERER)  # in the context of the environment
    env.close()
    return f"{frame}{f', by {by.decode()}' if by else ''}"


def classic_control() -> str:
    """Draw a frame with pygame."""
    env, frame = _drawn("CartPole-v1")
    env.close()
    return frame


def _drawn(env_id: str) -> tuple[Any, str]:
    """Return an environment and its shortest time per frame: other tries run at the same time."""
    import gymnasium

    env: Any = gymnasium.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    seconds = []
    for _ in range(_FRAMES):
        began = time.perf_counter()
        frame = env.render()
        seconds.append(time.perf_counter() - began)
    if not frame.std() > 0.0:
        raise RuntimeError(f"a frame of {env_id} has one colour: nothing is drawn")
    return env, f"a frame of {frame.shape[1]} x {frame.shape[0]} in {1000 * min(seconds):.0f} ms"


def video() -> str:
    """Check that ffmpeg encodes H.264, as `fastes play --video` needs it; nothing is written."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "64x64", "-r", "30"]
    command += ["-i", "-", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-f", "null", "-"]
    done = subprocess.run(command, input=bytes(3 * 64 * 64 * 3), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} fails: {done.stderr.decode(errors='replace').strip() or done.returncode}")
    return f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()} encodes H.264"


TRIES: dict[str, Callable[[], str]] = {
    "kernels": kernels,
    "training": training,
    "shared memory": shared_memory,
    "mujoco": mujoco,
    "classic control": classic_control,
    "video": video,
}
