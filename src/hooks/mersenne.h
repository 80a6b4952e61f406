/* SPDX-License-Identifier: MIT */
/* The Mersenne Twister MT19937, and what PyTorch draws with it.
 * Matsumoto and Nishimura, ACM Trans. Model. Comput. Simul. 8 (1998). */
#ifndef CZ_HOOKS_MERSENNE_H
#define CZ_HOOKS_MERSENNE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cz__mersenne {
    uint32_t words[624];
    int next;
    bool has_spare; /* the second number of a pair */
    double spare;
} cz__mersenne;

void cz__mersenne_seed(cz__mersenne *m, uint32_t seed);

/* Uniform below 1e9. */
uint32_t cz__mersenne_below_1e9(cz__mersenne *m);

/* `count` standard normal numbers, as one request. */
void cz__mersenne_normals(cz__mersenne *m, int64_t count, float *out);

#endif
