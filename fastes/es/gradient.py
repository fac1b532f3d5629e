"""The gradient of the expected return, from a generation's shaped returns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastes.es.fitness_shaping import Shaped
from fastes.es.perturbations import Perturbations


def estimate_gradient(perturbations: Perturbations, shaped: Shaped, weight_decay: float) -> npt.NDArray[np.float32]:
    """g = scale / share * sum_j w_j eps_j - weight_decay * theta, float32 (num_params,).

    share: of the parameters that each pair perturbs. Where each parameter has its own sigma, its part of the sum is multiplied
    by sigma_i over the mean sigma, as in PGPE: a parameter with twice the sigma takes twice the step.
    """
    theta = perturbations.theta
    gradient = perturbations.table.weighted_sum(perturbations.noise_index, shaped.weights, len(theta), perturbations.windows)
    gradient *= np.float32(shaped.scale * perturbations.inverse_share)
    if perturbations.sigma_each is not None:
        gradient *= perturbations.sigma_each / np.float32(perturbations.sigma)
    if weight_decay:
        gradient -= np.float32(weight_decay) * theta
    return gradient
