/* SPDX-License-Identifier: MIT */
/* The model's loops over elements, written so that a compiler vectorises them: no call in a loop,
 * no branch, and sums of LANES partial sums in one fixed order, whatever the vector width. */
#include "model.h"

#include <math.h>
#include <string.h>

/* Compiled for three widths of vectors, of which the processor's widest is taken when the program
 * starts. The bits are the same: each operation rounds by itself (-ffp-contract=off). Not by clang,
 * which before version 18 gave such functions names that other files do not find. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) &&       \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KERNEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KERNEL
#endif

enum { LANES = 16 };

static inline real lanes_sum(real *lane)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

/* e^x for x <= 0, to about 1e-7 relative; 0 below -87; a NaN stays one.
 * x = i ln 2 + r, e^r by a polynomial (Moshier's Cephes, expf), 2^i by writing the exponent.
 * Adding 1.5 2^23 rounds to an integer and leaves it in the low bits: not for -ffast-math.
 * The lower limit is a mask because gcc 12 makes a branch of x < -87 ? -87 : x, and the branch
 * keeps it from vectorising. */
static inline real exponential(real x)
{
#ifdef GPT_DOUBLE
    return exp(x);
#else
    const float magic = 12582912.0f;
    const uint32_t keep = (uint32_t)(x < -87.0f) - 1; /* all ones, or 0: x = 0 and 2^i = 0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= keep;
    memcpy(&x, &bits, sizeof x);
    const float shifted = x * 1.44269504f + magic;
    const float i = shifted - magic;
    const float r = (x - i * 0.693359375f) + i * 2.12194440e-4f;
    float e = 1.9875691500e-4f;
    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * r * r + r + 1.0f;
    memcpy(&bits, &shifted, sizeof bits);
    bits = ((bits + 127) << 23) & keep;
    float power;
    memcpy(&power, &bits, sizeof power);
    return e * power;
#endif
}

/* Every row = bias: a product that adds to it follows. */
void rows_fill(real *out, const real *bias, share rows, int n)
{
    for (int row = rows.begin; row < rows.end; row++)
        memcpy(out + (int64_t)row * n, bias, (size_t)n * sizeof *out);
}

/* Every row = in + bias. */
KERNEL void rows_add(real *restrict out, const real *restrict in, const real *restrict bias,
                     share rows, int n)
{
    for (int64_t row = rows.begin; row < rows.end; row++)
        for (int j = 0; j < n; j++)
            out[row * n + j] = in[row * n + j] + bias[j];
}

/* d_bias += the sum of the rows. */
KERNEL void columns_sum(real *restrict d_bias, const real *restrict d, share columns, int rows,
                        int n)
{
    int row = 0;
    for (; row + 4 <= rows; row += 4, d += 4 * (int64_t)n)
        for (int j = columns.begin; j < columns.end; j++)
            d_bias[j] += (d[j] + d[n + j]) + (d[2 * n + j] + d[3 * n + j]);
    for (; row < rows; row++, d += n)
        for (int j = columns.begin; j < columns.end; j++)
            d_bias[j] += d[j];
}

/* out = (in - mean) rstd weight + bias. Ba et al., "Layer Normalization", arXiv:1607.06450. */
KERNEL void layer_norm(real *restrict out, real *restrict mean, real *restrict rstd,
                       const real *restrict in, const real *restrict weight,
                       const real *restrict bias, share rows, int n)
{
    const int whole = n - n % LANES;
    for (int row = rows.begin; row < rows.end; row++) {
        const real *restrict x = in + (int64_t)row * n;
        real *restrict y = out + (int64_t)row * n;
        real lane[LANES] = {0};
        for (int i = 0; i < whole; i += LANES)
            for (int j = 0; j < LANES; j++)
                lane[j] += x[i + j];
        for (int i = whole; i < n; i++)
            lane[i - whole] += x[i];
        const real m = lanes_sum(lane) / n;

        memset(lane, 0, sizeof lane);
        for (int i = 0; i < whole; i += LANES)
            for (int j = 0; j < LANES; j++)
                lane[j] += (x[i + j] - m) * (x[i + j] - m);
        for (int i = whole; i < n; i++)
            lane[i - whole] += (x[i] - m) * (x[i] - m);
        const real r = 1 / (real)sqrt((double)(lanes_sum(lane) / n + (real)1e-5));

        for (int i = 0; i < n; i++)
            y[i] = (x[i] - m) * r * weight[i] + bias[i];
        mean[row] = m;
        rstd[row] = r;
    }
}

/* With x = (in - mean) rstd and d = d_out weight: d_in += rstd (d - mean(d) - x mean(d x)). */
KERNEL void layer_norm_backward(real *restrict d_in, const real *restrict d_out,
                                const real *restrict in, const real *restrict mean,
                                const real *restrict rstd, const real *restrict weight, share rows,
                                int n)
{
    const int whole = n - n % LANES;
    for (int row = rows.begin; row < rows.end; row++) {
        const int64_t first = (int64_t)row * n;
        const real *restrict dy = d_out + first, *restrict x = in + first;
        real *restrict dx = d_in + first;
        const real m = mean[row], r = rstd[row];
        real sum[LANES] = {0}, product[LANES] = {0};
        for (int i = 0; i < whole; i += LANES)
            for (int j = 0; j < LANES; j++) {
                const real d = dy[i + j] * weight[i + j];
                sum[j] += d;
                product[j] += d * ((x[i + j] - m) * r);
            }
        for (int i = whole; i < n; i++) {
            const real d = dy[i] * weight[i];
            sum[i - whole] += d;
            product[i - whole] += d * ((x[i] - m) * r);
        }
        const real d_mean = lanes_sum(sum) / n, dx_mean = lanes_sum(product) / n;

        for (int i = 0; i < n; i++)
            dx[i] += r * (dy[i] * weight[i] - d_mean - (x[i] - m) * r * dx_mean);
    }
}

/* d_weight += d_out x, d_bias += d_out, summed over all rows, for some columns. */
KERNEL void layer_norm_gradients(real *restrict d_weight, real *restrict d_bias,
                                 const real *restrict d_out, const real *restrict in,
                                 const real *restrict mean, const real *restrict rstd,
                                 share columns, int rows, int n)
{
    for (int row = 0; row < rows; row++, d_out += n, in += n) {
        const real m = mean[row], r = rstd[row];
        for (int i = columns.begin; i < columns.end; i++) {
            d_weight[i] += d_out[i] * ((in[i] - m) * r);
            d_bias[i] += d_out[i];
        }
    }
}

/* GELU's tanh form: x (1 + tanh u) / 2 = x s, s = 1 / (1 + e^-2u), u = sqrt(2/pi) (x + c x^3).
 * Hendrycks and Gimpel, arXiv:1606.08415. */
#define TWO_ROOT_2_PI ((real)1.5957691216057308)
#define CUBIC ((real)0.044715)

static inline real gelu_share(real x) /* s */
{
    const real two_u = TWO_ROOT_2_PI * (x + CUBIC * x * x * x);
    const real e = exponential(two_u < 0 ? two_u : -two_u);
    return (two_u < 0 ? e : 1) / (1 + e);
}

KERNEL void gelu(real *restrict out, const real *restrict in, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = in[i] * gelu_share(in[i]);
}

/* d *= s + x s (1 - s) 2u' */
KERNEL void gelu_backward(real *restrict d, const real *restrict in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const real x = in[i], s = gelu_share(x);
        d[i] *= s + x * s * (1 - s) * (TWO_ROOT_2_PI * (1 + 3 * CUBIC * x * x));
    }
}

/* x = e^x / sum e^x, in place; returns log sum e^x. */
KERNEL real softmax(real *x, int n)
{
    const int whole = n - n % LANES;
    real lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = x[0];
    for (int i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int i = whole; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] = lane[j + width] > lane[j] ? lane[j + width] : lane[j];
    const real max = lane[0];

    for (int i = 0; i < n; i++)
        x[i] = exponential(x[i] - max);
    memset(lane, 0, sizeof lane);
    for (int i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += x[i + j];
    for (int i = whole; i < n; i++)
        lane[i - whole] += x[i];
    const real sum = lanes_sum(lane), inverse = 1 / sum;
    for (int i = 0; i < n; i++)
        x[i] *= inverse;
    return max + (real)log((double)sum);
}

/* d = p (d - sum p d), in place, for p = softmax(x). */
KERNEL void softmax_backward(real *restrict d, const real *restrict p, int n)
{
    const int whole = n - n % LANES;
    real lane[LANES] = {0};
    for (int i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += p[i + j] * d[i + j];
    for (int i = whole; i < n; i++)
        lane[i - whole] += p[i] * d[i];
    const real sum = lanes_sum(lane);
    for (int i = 0; i < n; i++)
        d[i] = p[i] * (d[i] - sum);
}
