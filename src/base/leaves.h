/* SPDX-License-Identifier: MIT */
/* Which leaves of the tree of sums each rank has, where they are more than the ranks.
 *
 * Each rank has as many leaves as any other, or one more: the first ranks. It has them as blocks,
 * one for each binary digit of their number, the largest first. Blocks of one size lie side by side
 * in rank order, after all larger ones: so each begins at a multiple of its size, and is a subtree
 * of the tree over all leaves, in which the left side of a sum is the largest power of two below
 * the count. A rank that goes through its leaves in order and adds two partial sums as soon as they
 * stand for equally many leaves ends with one sum, a *term*, for each block. */
#ifndef CZ_BASE_LEAVES_H
#define CZ_BASE_LEAVES_H

/* Of a tree. */
enum { CZ__MOST_LEAVES = 4096 };

/* A deal. A value. */
typedef struct cz__leaves {
    int count; /* of leaves: at least as many as ranks */
    int world_size;
} cz__leaves;

/* Ones among the binary digits of a number that is not below 0. */
int cz__leaves_digits(int number);

/* How many a rank has, and the i-th of them, from 0 on in its order: their number, below count. */
int cz__leaves_of(const cz__leaves *leaves, int rank);
int cz__leaves_at(const cz__leaves *leaves, int rank, int i);

/* Its terms, and the leaf with which one begins; the most terms that any rank has. */
int cz__leaves_terms(const cz__leaves *leaves, int rank);
int cz__leaves_term(const cz__leaves *leaves, int rank, int term);
int cz__leaves_most_terms(const cz__leaves *leaves);

/* Partial sums that a rank keeps while it goes through its leaves, or as terms, beside the last
 * leaf's value, at most. */
int cz__leaves_kept(const cz__leaves *leaves, int rank);

#endif
