/* SPDX-License-Identifier: MIT */
/* The loops of reduce.c for one element type: ELEMENT in memory, WIDE where it is added, RESULT
 * where it goes, named TYPE; LOAD and STORE convert, ADD adds, MULTIPLY multiplies, IS_NAN asks;
 * FLOATING types have an average, the others bits; SUMS_ONLY: there is nothing but sum and average.
 * `product` says that values are multiplied rather than added. */

#define BLOCK (BLOCK_BYTES / (int64_t)sizeof(WIDE))
#define LENGTH(begin, count) ((count) - (begin) < BLOCK ? (count) - (begin) : BLOCK)
#define FOLD_BLOCK CZ_TYPED(fold_block)
#define PICK_BLOCK CZ_TYPED(pick_block)

CZ_BODY WIDE CZ_TYPED(combine)(bool product, WIDE a, WIDE b)
{
    return product ? MULTIPLY(a, b) : ADD(a, b);
}

/* The tree over 1 … 4 values. */
CZ_BODY WIDE CZ_TYPED(tree)(bool product, int few, WIDE a, WIDE b, WIDE c, WIDE d)
{
    const WIDE left = few > 1 ? CZ_TYPED(combine)(product, a, b) : a;
    const WIDE right = few > 3 ? CZ_TYPED(combine)(product, c, d) : c;
    return few > 2 ? CZ_TYPED(combine)(product, left, right) : left;
}

/* The sources `first` … `first` + `few` - 1, of which there are 1 … 4. */
#define SOURCES(first, few)                                                                        \
    const ELEMENT *a = sources[first], *b = sources[first + ((few) > 1)],                          \
                  *c = sources[first + 2 * ((few) > 2)], *d = sources[first + 3 * ((few) > 3)]
#define TREE(few, i) CZ_TYPED(tree)(product, few, LOAD(a[i]), LOAD(b[i]), LOAD(c[i]), LOAD(d[i]))
#define FINISH(sum, divisor) STORE(average ? (sum) / (WIDE)(divisor) : (sum))

/* All the sources, if they are 1 … 4. */
CZ_BODY void CZ_TYPED(fold_few)(bool product, bool average, int divisor, int few,
                                const void *const *sources, int64_t count, RESULT *out)
{
    SOURCES(0, few);
    CZ_INDEPENDENT
    for (int64_t i = 0; i < count; i++)
        out[i] = FINISH(TREE(few, i), divisor);
}

/* Dividing by a constant is faster. */
CZ_BODY void CZ_TYPED(fold_constant)(bool product, bool average, int divisor, int few,
                                     const void *const *sources, int64_t count, RESULT *out)
{
    if (!average || divisor == few)
        CZ_TYPED(fold_few)(product, average, few, few, sources, count, out);
    else
        CZ_TYPED(fold_few)(product, average, divisor, few, sources, count, out);
}

/* Some of many sources, one block of them. */
CZ_BODY void CZ_TYPED(leaf)(bool product, int few, const void *const *sources, int first,
                            int64_t begin, int64_t count, WIDE *restrict out)
{
    SOURCES(first, few);
    for (int64_t i = 0; i < count; i++)
        out[i] = TREE(few, begin + i);
}

CZ_BODY void CZ_TYPED(merge)(bool product, int64_t count, WIDE *restrict left,
                             const WIDE *restrict right)
{
    for (int64_t i = 0; i < count; i++)
        left[i] = CZ_TYPED(combine)(product, left[i], right[i]);
}

CZ_BODY void CZ_TYPED(finish)(bool average, int divisor, int64_t count, const WIDE *restrict sum,
                              RESULT *restrict out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = FINISH(sum[i], divisor);
}

/* One block of many sources. A binary counter of leaves: two partial results are merged as soon as
 * they stand for equally many sources, and what is left at the end from the right. */
CZ_BODY void CZ_TYPED(fold_block)(bool product, bool average, int divisor, int source_count,
                                  const void *const *sources, int64_t begin, int64_t count,
                                  RESULT *out)
{
    WIDE partial[MAX_PARTIALS][BLOCK];
    int depth = 0, done = 0;
    for (; done + 4 <= source_count; done += 4) {
        CZ_TYPED(leaf)(product, 4, sources, done, begin, count, partial[depth++]);
        for (unsigned leaves = (unsigned)done / 4; leaves & 1; leaves >>= 1, depth--)
            CZ_TYPED(merge)(product, count, partial[depth - 2], partial[depth - 1]);
    }
    if (source_count - done == 3)
        CZ_TYPED(leaf)(product, 3, sources, done, begin, count, partial[depth++]);
    else if (source_count - done == 2)
        CZ_TYPED(leaf)(product, 2, sources, done, begin, count, partial[depth++]);
    else if (source_count - done == 1)
        CZ_TYPED(leaf)(product, 1, sources, done, begin, count, partial[depth++]);
    for (; depth > 1; depth--)
        CZ_TYPED(merge)(product, count, partial[depth - 2], partial[depth - 1]);
    if (average)
        CZ_TYPED(finish)(true, divisor, count, partial[0], out + begin);
    else
        CZ_TYPED(finish)(false, divisor, count, partial[0], out + begin);
}

/* Not inline: sums and averages share it. */
static
    __attribute__((noinline)) void CZ_TYPED(add_many)(bool average, int divisor, int source_count,
                                                      const void *const *sources, int64_t count,
                                                      RESULT *out)
{
    for (int64_t begin = 0; begin < count; begin += BLOCK)
        FOLD_BLOCK(false, average, divisor, source_count, sources, begin, LENGTH(begin, count),
                   out);
}

#ifndef SUMS_ONLY
static __attribute__((noinline)) void CZ_TYPED(multiply_many)(int source_count,
                                                              const void *const *sources,
                                                              int64_t count, RESULT *out)
{
    for (int64_t begin = 0; begin < count; begin += BLOCK)
        FOLD_BLOCK(true, false, 1, source_count, sources, begin, LENGTH(begin, count), out);
}
#endif

/* The last partial result and one source more. */
CZ_BODY void CZ_TYPED(merge_source)(bool product, int64_t begin, int64_t count, WIDE *restrict left,
                                    const ELEMENT *restrict right)
{
    for (int64_t i = 0; i < count; i++)
        left[i] = CZ_TYPED(combine)(product, left[i], LOAD(right[begin + i]));
}

/* One block: a source that waits for the next alone is taken with it. */
CZ_BODY void CZ_TYPED(fold_present)(bool product, bool average, int divisor, const present *there,
                                    const void *const *sources, int64_t begin, int64_t count,
                                    WIDE (*partial)[BLOCK], RESULT *out)
{
    int depth = 0;
    for (int k = 0; k < there->count; k++) {
        int merges = there->merges[k];
        const void *two[] = {sources[there->places[k]], NULL};
        if (merges > 0) {
            CZ_TYPED(merge_source)(product, begin, count, partial[depth - 1], two[0]);
            merges--;
        } else if (k + 1 < there->count && there->merges[k + 1] > 0) {
            two[1] = sources[there->places[++k]];
            CZ_TYPED(leaf)(product, 2, two, 0, begin, count, partial[depth++]);
            merges = there->merges[k] - 1;
        } else {
            CZ_TYPED(leaf)(product, 1, two, 0, begin, count, partial[depth++]);
        }
        for (; merges > 0; merges--, depth--)
            CZ_TYPED(merge)(product, count, partial[depth - 2], partial[depth - 1]);
    }
    CZ_TYPED(finish)(average, divisor, count, partial[0], out + begin);
}

/* Not inline: rarely used. */
static __attribute__((noinline)) void CZ_TYPED(fold_some)(bool product, bool average, int divisor,
                                                          const present *there,
                                                          const void *const *sources, int64_t count,
                                                          RESULT *out)
{
    WIDE partial[MAX_LEVELS][BLOCK];
#ifdef CZ_STATIC_ANALYSIS /* which does not see that the first source is merged with none */
    memset(partial, 0, sizeof partial);
#endif
    for (int64_t begin = 0; begin < count; begin += BLOCK)
        CZ_TYPED(fold_present)(product, average, divisor, there, sources, begin,
                               LENGTH(begin, count), partial, out);
}

CZ_BODY void CZ_TYPED(fold)(bool product, bool average, int source_count,
                            const void *const *sources, int64_t count, RESULT *out)
{
    const int divisor = source_count;
    const void *packed[FEW_PRESENT];
    if (!are_all_there(sources, source_count)) {
        present there;
        find_present(sources, source_count, &there);
        if (!are_dense(&there) || (there.count == 1 && average)) {
            CZ_TYPED(fold_some)(product, average, divisor, &there, sources, count, out);
            return;
        }
        for (int k = 0; k < there.count; k++)
            packed[k] = sources[there.places[k]];
        sources = packed;
        source_count = there.count;
    }
    if (source_count == 1 && sizeof *out == sizeof(ELEMENT))
        memmove(out, sources[0], (size_t)count * sizeof *out);
    else if (source_count == 1)
        CZ_TYPED(fold_few)(false, false, 1, 1, sources, count, out);
    else if (source_count == 2)
        CZ_TYPED(fold_constant)(product, average, divisor, 2, sources, count, out);
    else if (source_count == 3)
        CZ_TYPED(fold_constant)(product, average, divisor, 3, sources, count, out);
    else if (source_count == 4)
        CZ_TYPED(fold_constant)(product, average, divisor, 4, sources, count, out);
#ifndef SUMS_ONLY
    else if (product)
        CZ_TYPED(multiply_many)(source_count, sources, count, out);
#endif
    else
        CZ_TYPED(add_many)(average, divisor, source_count, sources, count, out);
}

#ifndef SUMS_ONLY
/* The larger or smaller one. A NaN stays, and nothing is above or below it: the first one wins. Of
 * equal ones the last. Both are the same in every order of a tree. */
CZ_BODY WIDE CZ_TYPED(pick)(bool largest, WIDE a, WIDE b)
{
    return ((largest ? a > b : a < b) | IS_NAN(a)) ? a : b;
}

/* Not inline: gcc 12 leaves this loop scalar inside the one over the sources. */
static __attribute__((noinline)) void CZ_TYPED(max_next)(int64_t count, WIDE *restrict picked,
                                                         const ELEMENT *restrict next)
{
    for (int64_t i = 0; i < count; i++)
        picked[i] = CZ_TYPED(pick)(true, picked[i], LOAD(next[i]));
}

static __attribute__((noinline)) void CZ_TYPED(min_next)(int64_t count, WIDE *restrict picked,
                                                         const ELEMENT *restrict next)
{
    for (int64_t i = 0; i < count; i++)
        picked[i] = CZ_TYPED(pick)(false, picked[i], LOAD(next[i]));
}

#ifndef FLOATING
static __attribute__((noinline)) void CZ_TYPED(and_next)(int64_t count, WIDE *restrict picked,
                                                         const ELEMENT *restrict next)
{
    for (int64_t i = 0; i < count; i++)
        picked[i] = picked[i] & next[i];
}

static __attribute__((noinline)) void CZ_TYPED(or_next)(int64_t count, WIDE *restrict picked,
                                                        const ELEMENT *restrict next)
{
    for (int64_t i = 0; i < count; i++)
        picked[i] = picked[i] | next[i];
}
#endif

/* What gives the same in every order: one source after the other. */
CZ_BODY void CZ_TYPED(pick_block)(void (*pick_next)(int64_t, WIDE *, const ELEMENT *),
                                  int source_count, const void *const *sources, int64_t begin,
                                  int64_t count, RESULT *out)
{
    WIDE picked[BLOCK];
    int first = 0;
    while (!sources[first])
        first++;
    CZ_TYPED(leaf)(false, 1, sources, first, begin, count, picked);
    for (int k = first + 1; k < source_count; k++)
        if (sources[k])
            pick_next(count, picked, (const ELEMENT *)sources[k] + begin);
    for (int64_t i = 0; i < count; i++)
        out[begin + i] = STORE(picked[i]);
}

static void CZ_TYPED(pick_all)(void (*pick_next)(int64_t, WIDE *, const ELEMENT *),
                               int source_count, const void *const *sources, int64_t count,
                               RESULT *out)
{
    for (int64_t begin = 0; begin < count; begin += BLOCK)
        PICK_BLOCK(pick_next, source_count, sources, begin, LENGTH(begin, count), out);
}
#endif

CZ_REDUCE(sum, TYPE)
{
    CZ_TYPED(fold)(false, false, source_count, sources, count, out);
}

#ifndef SUMS_ONLY
CZ_REDUCE(product, TYPE)
{
    CZ_TYPED(fold)(true, false, source_count, sources, count, out);
}

CZ_REDUCE(max, TYPE)
{
    CZ_TYPED(pick_all)(CZ_TYPED(max_next), source_count, sources, count, out);
}

CZ_REDUCE(min, TYPE)
{
    CZ_TYPED(pick_all)(CZ_TYPED(min_next), source_count, sources, count, out);
}
#endif

#ifdef FLOATING
CZ_REDUCE(average, TYPE)
{
    CZ_TYPED(fold)(false, true, source_count, sources, count, out);
}
#else
CZ_REDUCE(and, TYPE)
{
    CZ_TYPED(pick_all)(CZ_TYPED(and_next), source_count, sources, count, out);
}

CZ_REDUCE(or, TYPE)
{
    CZ_TYPED(pick_all)(CZ_TYPED(or_next), source_count, sources, count, out);
}
#endif

#undef BLOCK
#undef LENGTH
#undef FOLD_BLOCK
#undef PICK_BLOCK
#undef SOURCES
#undef TREE
#undef FINISH
#undef ELEMENT
#undef WIDE
#undef RESULT
#undef TYPE
#undef LOAD
#undef STORE
#undef ADD
#undef MULTIPLY
#undef IS_NAN
#undef FLOATING
#undef SUMS_ONLY
