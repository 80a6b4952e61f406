/* SPDX-License-Identifier: MIT */
/* The loops of matmul.c for one element type: REAL, named TYPE. */

#define VEC CZ_TYPED(vec)
#define NR ((int64_t)(2 * VECTOR / sizeof(REAL)))
#define ROWS ((int64_t)(BYTES_OF_A / DEPTH / sizeof(REAL)))
#define COLUMNS ((int64_t)(BYTES_OF_B / DEPTH / sizeof(REAL)))

typedef REAL VEC __attribute__((vector_size(VECTOR), may_alias));

/* The rows of a or the columns of b, `count` of them and `depth` elements of each, into panels of
 * `width` side by side; the last panel is filled up with zeros. In memory one is `next` elements
 * from the one before, and its elements are `along` apart: one of the two is 1. */
CZ_BODY void CZ_TYPED(pack)(int64_t width, int64_t count, int64_t depth, const REAL *from,
                            int64_t next, int64_t along, REAL *restrict to)
{
    for (int64_t first = 0; first < count; first += width, to += depth * width) {
        const REAL *restrict begin = from + first * next;
        const int64_t some = count - first < width ? count - first : width;
        if (some < width) {
            memset(to, 0, (size_t)(depth * width) * sizeof *to);
            for (int64_t k = 0; k < depth; k++)
                for (int64_t i = 0; i < some; i++)
                    to[k * width + i] = begin[i * next + k * along];
        } else if (along == 1) {
            for (int64_t k = 0; k < depth; k++)
                for (int64_t i = 0; i < width; i++)
                    to[k * width + i] = begin[i * next + k];
        } else {
            for (int64_t k = 0; k < depth; k++)
                for (int64_t i = 0; i < width; i++)
                    to[k * width + i] = begin[i + k * along];
        }
    }
}

/* The products of a panel of a with one of b. */
CZ_BODY void CZ_TYPED(multiply_panels)(int64_t depth, const REAL *restrict a,
                                       const REAL *restrict b, REAL *restrict tile)
{
    VEC sums[MR][2];
    memset(sums, 0, sizeof sums);
    for (int64_t k = 0; k < depth; k++, a += MR, b += NR) {
        const VEC left = ((const VEC *)b)[0], right = ((const VEC *)b)[1];
        for (int i = 0; i < MR; i++) {
            sums[i][0] += a[i] * left;
            sums[i][1] += a[i] * right;
        }
    }
    memcpy(tile, sums, sizeof sums);
}

/* The part of a tile that is in c; the addend may be c. */
CZ_BODY void CZ_TYPED(put_tile)(const REAL *restrict tile, int64_t rows, int64_t columns,
                                int64_t stride, REAL alpha, REAL beta, const REAL *addend, REAL *c)
{
    for (int64_t i = 0; i < rows; i++, tile += NR) {
        REAL *to = c + i * stride;
        const REAL *from = addend ? addend + i * stride : NULL;
        if (from)
            CZ_INDEPENDENT
        for (int64_t j = 0; j < columns; j++)
            to[j] = beta * from[j] + alpha * tile[j];
        else for (int64_t j = 0; j < columns; j++) to[j] = alpha * tile[j];
    }
}

/* Tiles of c from the panels of some rows and of some columns, which begin at element (top, left).
 * Of a symmetric c those below the diagonal are left out. */
CZ_BODY void CZ_TYPED(multiply_block)(const cz_matmul *m, int64_t top, int64_t rows, int64_t left,
                                      int64_t columns, int64_t depth, const REAL *panels_a,
                                      const REAL *panels_b, REAL beta, const REAL *addend)
{
    _Alignas(VECTOR) REAL tile[MR * NR];
    for (int64_t j = 0; j < columns; j += NR)
        for (int64_t i = 0; i < rows; i += MR) {
            const int64_t at = (top + i) * m->columns + left + j;
            if (m->symmetric && left + j + NR <= top + i)
                break;
            CZ_TYPED(multiply_panels)(depth, panels_a + i * depth, panels_b + j * depth, tile);
            CZ_TYPED(put_tile)
            (tile, rows - i < MR ? rows - i : MR, columns - j < NR ? columns - j : NR, m->columns,
             (REAL)m->alpha, beta, addend ? addend + at : NULL, (REAL *)m->c + at);
        }
}

/* The products of elements [k, k + depth) of each row of a and column of b. */
CZ_BODY void CZ_TYPED(multiply_depth)(const cz_matmul *m, int64_t k, int64_t depth, REAL beta,
                                      const REAL *addend)
{
    const int64_t next_a = m->transposed_a ? 1 : m->inner, along_a = m->transposed_a ? m->rows : 1;
    const int64_t next_b = m->transposed_b ? m->inner : 1;
    const int64_t along_b = m->transposed_b ? 1 : m->columns;
    const REAL *a = (const REAL *)m->a + k * along_a, *b = (const REAL *)m->b + k * along_b;
    REAL *panels_a = m->scratch, *panels_b = panels_a + BYTES_OF_A / sizeof(REAL);
    for (int64_t left = 0; left < m->columns; left += COLUMNS) {
        const int64_t columns = m->columns - left < COLUMNS ? m->columns - left : COLUMNS;
        CZ_TYPED(pack)(NR, columns, depth, b + left * next_b, next_b, along_b, panels_b);
        for (int64_t top = 0; top < m->rows; top += ROWS) {
            const int64_t rows = m->rows - top < ROWS ? m->rows - top : ROWS;
            if (m->symmetric && left + columns <= top)
                break;
            CZ_TYPED(pack)(MR, rows, depth, a + top * next_a, next_a, along_a, panels_a);
            CZ_TYPED(multiply_block)
            (m, top, rows, left, columns, depth, panels_a, panels_b, beta, addend);
        }
    }
}

CZ_MATMUL(TYPE)
{
    int64_t k = 0;
    do { /* also where there is nothing to multiply: c becomes beta addend */
        const int64_t left = product->inner - k, depth = left < DEPTH ? left : DEPTH;
        CZ_TYPED(multiply_depth)
        (product, k, depth, k > 0 ? 1 : (REAL)product->beta, k > 0 ? product->c : product->addend);
        k += depth;
    } while (k < product->inner);
    if (product->symmetric)
        CZ_KERNEL(CZ_PASTE(mirror, TYPE))(product->rows, product->c);
}

CZ_MIRROR(TYPE)
{
    REAL *c = matrix;
    for (int64_t top = 0; top < count; top += MIRRORED)
        for (int64_t left = 0; left <= top; left += MIRRORED)
            for (int64_t i = top; i < top + MIRRORED && i < count; i++)
                for (int64_t j = left; j < left + MIRRORED && j < i; j++)
                    c[i * count + j] = c[j * count + i];
}

#undef VEC
#undef NR
#undef ROWS
#undef COLUMNS
