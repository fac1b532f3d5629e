/* Sums with a fixed order. Included once by each variant. */

LANES_INLINE double read_obs(const void *obs, int32_t dtype, int64_t i) {
    if (dtype == FASTES_OBS_FLOAT64) return ((const double *)obs)[i];
    if (dtype == FASTES_OBS_FLOAT32) return ((const float *)obs)[i];
    return ((const uint8_t *)obs)[i];
}

LANES_INLINE void observe_as(const fastes_policy *p, const void *obs, int32_t dtype, float *x, int32_t count_moments) {
    int64_t n = p->obs_size;
    if (!p->normalize) {
        for (int64_t i = 0; i < n; i++) x[i] = (float)read_obs(obs, dtype, i);
        return;
    }
    double clip = p->obs_clip;
    double *restrict sums = p->moments, *restrict squares = p->moments + n;
    const double *restrict mean = p->obs_mean, *restrict inv_std = p->obs_inv_std;
    if (count_moments)
        for (int64_t i = 0; i < n; i++) {
            double d = read_obs(obs, dtype, i) - mean[i];
            sums[i] += d;
            squares[i] += d * d;
        }
    for (int64_t i = 0; i < n; i++) {
        double z = (read_obs(obs, dtype, i) - mean[i]) * inv_std[i];
        z = z < -clip ? -clip : z;
        z = z > clip ? clip : z;
        x[i] = (float)z;
    }
}

/* obs (obs_size,) -> x (obs_size,), normalised and clipped; moments about obs_mean keep their precision. */
static void observe(const fastes_policy *p, const void *obs, int32_t dtype, float *x, int32_t count_moments) {
    if (dtype == FASTES_OBS_FLOAT64) observe_as(p, obs, FASTES_OBS_FLOAT64, x, count_moments);
    else if (dtype == FASTES_OBS_FLOAT32) observe_as(p, obs, FASTES_OBS_FLOAT32, x, count_moments);
    else observe_as(p, obs, FASTES_OBS_UINT8, x, count_moments);
}

static double sum_squares(const float *x, int64_t n) {
    double lane[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += (double)x[i] * (double)x[i];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}
