/* SPDX-License-Identifier: MIT */
/* The loops of low_rank.c for one element type: REAL, its unit of rounding UNIT, NAME(f) the name
 * of f for it. */

/* In 16 sums, so that rounding grows slowly and a compiler can use vectors. */
static REAL NAME(dot)(int64_t count, const REAL *restrict a, const REAL *restrict b)
{
    REAL lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        lanes[0] += a[i] * b[i];
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

static void NAME(add_multiple)(int64_t count, REAL factor, const REAL *restrict a,
                               REAL *restrict to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += factor * a[i];
}

static void NAME(project)(const cz__low_rank *l)
{
    for (int64_t i = 0; i < l->rows; i++)
        for (int k = 0; k < l->rank; k++)
            ((REAL *)l->p)[k * l->rows + i] =
                NAME(dot)(l->cols, (REAL *)l->matrix + i * l->cols, (REAL *)l->q + k * l->cols);
}

/* Four rows at once: their sum is written once. */
static void NAME(add_rows)(int64_t count, const REAL *restrict p, const REAL *restrict rows,
                           REAL *restrict to)
{
    const REAL *second = rows + count, *third = second + count, *fourth = third + count;
    for (int64_t j = 0; j < count; j++)
        to[j] += (p[0] * rows[j] + p[1] * second[j]) + (p[2] * third[j] + p[3] * fourth[j]);
}

static void NAME(back)(const cz__low_rank *l)
{
    for (int64_t i = 0; i < l->rank * l->cols; i++)
        ((REAL *)l->q)[i] = 0;
    for (int64_t i = 0; i < l->rows; i += 4)
        for (int k = 0; k < l->rank; k++) {
            const REAL *p = (REAL *)l->p + k * l->rows, *rows = (REAL *)l->matrix + i * l->cols;
            REAL *column = (REAL *)l->q + k * l->cols;
            if (i + 4 <= l->rows)
                NAME(add_rows)(l->cols, p + i, rows, column);
            for (int64_t n = i + 4 <= l->rows ? l->rows : i; n < l->rows; n++)
                NAME(add_multiple)(l->cols, p[n], (REAL *)l->matrix + n * l->cols, column);
        }
}

static void NAME(expand)(const cz__low_rank *l)
{
    for (int64_t i = 0; i < l->rows; i++) {
        REAL *row = (REAL *)l->matrix + i * l->cols;
        for (int64_t j = 0; j < l->cols; j++)
            row[j] = ((REAL *)l->p)[i] * ((REAL *)l->q)[j];
        for (int k = 1; k < l->rank; k++)
            NAME(add_multiple)
        (l->cols, ((REAL *)l->p)[k * l->rows + i], (REAL *)l->q + k * l->cols, row);
    }
}

/* In double, so that squares of tiny and huge gradients are numbers. */
static double NAME(inner)(int64_t count, const REAL *a, const REAL *b)
{
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < count; i++)
        lanes[0] += (double)a[i] * (double)b[i];
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

static void NAME(set)(int64_t count, REAL value, REAL *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = value;
}

/* Where squares of doubles leave the range of double: multiply the column by a power of two, so
 * that its largest element is between 1/2 and 1. Returns the exponent of that; 0 also if an element
 * is not finite. */
static int NAME(bring_into_range)(int64_t length, REAL *column, double norm)
{
    double largest = 0;
    int exponent;
    if (sizeof *column == sizeof(float) || (isfinite(norm) && norm > 0x1p-450))
        return 0;
    for (int64_t i = 0; i < length; i++) {
        if (!isfinite(column[i]))
            return 0;
        largest = fmax(largest, fabs((double)column[i]));
    }
    if (largest == 0)
        return 0;
    frexp(largest, &exponent);
    for (int64_t i = 0; i < length; i++)
        column[i] = (REAL)ldexp((double)column[i], -exponent);
    return -exponent;
}

/* Modified Gram-Schmidt; twice, which is enough (Giraud et al., Numer. Math. 101, 2005). With an
 * epsilon, columns are not of length 1, and the equation is one round. */
static bool NAME(orthogonalise_last)(int64_t length, int last, REAL *columns, double epsilon)
{
    REAL *column = columns + last * length;
    double before = sqrt(NAME(inner)(length, column, column));
    const int shift = NAME(bring_into_range)(length, column, before);
    if (shift != 0)
        before = sqrt(NAME(inner)(length, column, column));
    if (!isfinite(before)) {
        NAME(set)(length, (REAL)NAN, column);
        return false;
    }
    for (int round = 0; round < (epsilon > 0 ? 1 : 2); round++)
        for (int k = 0; k < last; k++) {
            const REAL *other = columns + k * length;
            NAME(add_multiple)(length, (REAL)-NAME(inner)(length, other, column), other, column);
        }
    const double norm = sqrt(NAME(inner)(length, column, column));
    if (norm <= (epsilon > 0 ? 0 : before * 16 * UNIT)) { /* nothing but roundings is left of it */
        NAME(set)(length, 0, column);
        return false;
    }
    const double divisor = norm + ldexp(epsilon, shift);
    for (int64_t i = 0; i < length; i++)
        column[i] = (REAL)((double)column[i] / divisor);
    return true;
}

static int NAME(orthogonalise)(int64_t length, int count, REAL *columns, double epsilon)
{
    int bad = 0;
    for (int k = 0; k < count; k++)
        bad += !NAME(orthogonalise_last)(length, k, columns, epsilon);
    return bad;
}

#undef REAL
#undef UNIT
#undef NAME
