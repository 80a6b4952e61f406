/* SPDX-License-Identifier: MIT */
/* Proof of a run: fingerprints of all parameters and all state after steps, each chained to those
 * before it. */
#ifndef PROOF_H
#define PROOF_H

#include <stdbool.h>

#include "czero/czero.h"

typedef struct proof_link {
    int64_t step; /* after so many steps */
    uint64_t print[2], chain[2];
} proof_link;

/* Zeroed: none was taken. The same on every rank. */
typedef struct proof {
    int every;         /* steps from one fingerprint to the next; 0: none are taken */
    proof_link *links; /* owned */
    int count, room;
} proof;

void proof_clear(proof *p);

/* The fingerprint of what is there now. Collective where `zero` is not NULL. */
cz_status proof_look(cz_zero *zero, const cz_optim *optim, uint64_t print[2]);

/* Is one due after so many steps? */
bool proof_is_due(const proof *p, int step);
cz_status proof_add(proof *p, int step, const uint64_t print[2]);

/* The link of that step; NULL: there is none. */
const proof_link *proof_find(const proof *p, int step);

/* 32 hexadecimal digits and a NUL. */
void proof_digits(const uint64_t number[2], char out[33]);

/* In a dictionary: all links, and `print`, of what is saved with it. */
cz_status proof_to_dict(const proof *p, const uint64_t print[2], cz_state_dict *common);
/* What a run goes on from, into a proof that has none yet: its `every` has to be that of then, and
 * the fingerprint of what was loaded, too. The chain of a run that was saved without begins here.
 * Collective. */
cz_status proof_from_dict(proof *p, cz_zero *zero, const cz_optim *optim,
                          const cz_state_dict *common);

#endif
