"""`python -m benchmarks.learning.studies NAME --out DIR`: one study; `python -m benchmarks.learning.studies` lists them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from benchmarks.learning.studies import defaults, game_frame_skip, populations
from benchmarks.learning.studies.study import Study, run_study

NAMES = ("cyclic_mdp", "memory", "frame_skip", "episode_reward", "settings", "perturbed_share")
# their trainings are of another kind: no contestants
OWN_RUNS = {"populations": populations, "defaults": defaults, "game_frame_skip": game_frame_skip}


def study_named(name: str) -> Study:
    study: Study = importlib.import_module(f"benchmarks.learning.studies.{name}").STUDY
    return study


def main(given: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if given is None else list(given)
    if arguments and arguments[0] in OWN_RUNS:
        OWN_RUNS[arguments[0]].run(arguments[1:])
        return
    if not arguments or arguments[0] not in NAMES:
        questions = {name: study_named(name).question for name in NAMES}
        questions |= {name: module.QUESTION for name, module in OWN_RUNS.items()}
        listed = "\n".join(f"  {name:<16}{question}" for name, question in questions.items())
        wrong = f"{arguments[0]!r} is no study\n\n" if arguments and arguments[0] not in ("-h", "--help") else ""
        print(f"{wrong}python -m benchmarks.learning.studies NAME --out DIR [options]\n\n{listed}", file=sys.stderr)
        raise SystemExit(2 if wrong or not arguments else 0)
    run_study(arguments[0], study_named(arguments[0]), arguments[1:])


if __name__ == "__main__":
    main()
