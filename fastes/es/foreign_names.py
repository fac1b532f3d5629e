"""Names that other packages for ES have for EvolutionStrategy's arguments."""

from __future__ import annotations

# their name -> the name here
RENAMED = {
    **dict.fromkeys(("lr", "lrate", "lrate_init", "stepsize", "step_size", "center_learning_rate"), "learning_rate"),
    **dict.fromkeys(("std", "delta_std", "noise_std", "noise_stdev", "sigma_init", "stdev_init", "init_stdev"), "sigma"),
    **dict.fromkeys(("sigma0", "init_sigma", "init_std"), "sigma"),
    **dict.fromkeys(("stdev_learning_rate", "sigma_lr"), "sigma_learning_rate"),
    **dict.fromkeys(("popsize", "pop_size", "population", "num_population", "n_population"), "population_size"),
    **dict.fromkeys(("l2_coeff", "l2coeff", "l2_coefficient", "l2"), "weight_decay"),
    **dict.fromkeys(("ranking_method", "return_proc_mode", "fitness_shaping"), "shaping"),
    "clipup_max_speed": "max_speed",
}
# their name, which has no counterpart -> what to do here
ANSWERS_OF_SEARCHES = {
    **dict.fromkeys(("mean", "x0", "center_init", "initial_solution"), "it is theta0 here, the first argument"),
    **dict.fromkeys(("num_dims", "n_dim", "n_dims", "dim", "solution_length"), "theta0, the first argument, has that length"),
    **dict.fromkeys(("bounds", "lower_bounds", "upper_bounds"), "there are none here: clip the candidates in your function"),
    "cov": "there is no covariance here; sigma_adaptation='per_parameter' learns a sigma for each parameter",
}
