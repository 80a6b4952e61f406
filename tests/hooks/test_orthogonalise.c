/* SPDX-License-Identifier: MIT */
/* Columns whose squares are beyond the range of double are made orthonormal as those of ordinary
 * size. */
#include "hooks/powersgd.h"

#include <math.h>

#include "support/cz_test.h"

enum { LENGTH = 40, COLUMNS = 3 };

static void fill(double *columns, double scale)
{
    for (int k = 0; k < COLUMNS; k++)
        for (int i = 0; i < LENGTH; i++)
            columns[k * LENGTH + i] = scale * ((i * (k + 3) * 7 + k) % 11 - 5);
}

TEST(columns_of_any_size)
{
    static const double scales[] = {0x1p600, 0x1p1010, 0x1p-400, 0x1p-540, 0x1p-1000};
    double wanted[COLUMNS * LENGTH], columns[COLUMNS * LENGTH];
    fill(wanted, 1);
    assert_int_equal(cz__orthogonalise(CZ_F64, LENGTH, COLUMNS, wanted, 0), 0);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        fill(columns, scales[s]);
        assert_int_equal(cz__orthogonalise(CZ_F64, LENGTH, COLUMNS, columns, 0), 0);
        for (int i = 0; i < COLUMNS * LENGTH; i++)
            assert_true(fabs(columns[i] - wanted[i]) < 1e-14);
    }
}

TEST(an_epsilon_keeps_its_size)
{
    double column[2] = {3e-200, 4e-200};
    assert_int_equal(cz__orthogonalise(CZ_F64, 2, 1, column, 5e-200), 0);
    assert_true(fabs(column[0] - 0.3) < 1e-15 && fabs(column[1] - 0.4) < 1e-15);
}

TEST(what_is_not_finite_stays_so)
{
    double column[2] = {1e300, INFINITY}, zero[2] = {0, 0};
    assert_int_equal(cz__orthogonalise(CZ_F64, 2, 1, column, 0), 1);
    assert_true(isnan(column[0]) && isnan(column[1]));
    assert_int_equal(cz__orthogonalise(CZ_F64, 2, 1, zero, 0), 1);
    assert_true(zero[0] == 0 && zero[1] == 0);
}
