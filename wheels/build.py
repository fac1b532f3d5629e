"""Build a wheel into wheels/dist and prove it in a fresh environment without a compiler. Run by `make wheel`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "wheels" / "dist"

PROOF = """
import shutil, fastes, fastes._core as core
assert not any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")), "there is a compiler here"
with fastes.FastES("CartPole-v1", seed=0, n_workers=2) as model:
    model.learn(total_timesteps=20_000)
    model.save("proof")
loaded = fastes.FastES.load("proof")
assert (loaded.theta == model.theta).all() and loaded.generation == model.generation > 0
print("proven:", fastes.__file__, "kernels", core.variant(), "of", core.available_variants(), loaded.predict([0.0] * 4))
"""


def main() -> None:
    DIST.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built"
        subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", built, ROOT], check=True)
        wheel = next(built.glob("*.whl"))
        prove(wheel, Path(folder))
        for old in DIST.glob("fastes-*.whl"):
            old.unlink()
        target = DIST / wheel.name
        target.write_bytes(wheel.read_bytes())
    print(f"wheels/dist/{target.name}: {target.stat().st_size / 1e6:.2f} MB")


def prove(wheel: Path, folder: Path) -> None:
    """Install and use the wheel where no compiler can be found and the source tree is out of sight."""
    home = folder / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    env = {**os.environ, "PATH": str(home / "bin")}
    env.pop("PYTHONPATH", None)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel], check=True, env=env)
    subprocess.run([python, "-c", PROOF], check=True, env=env, cwd=folder)


if __name__ == "__main__":
    main()
