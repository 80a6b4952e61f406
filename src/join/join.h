/* SPDX-License-Identifier: MIT */
/* Joins for the library's own joinables. */
#ifndef CZ_JOIN_JOIN_H
#define CZ_JOIN_JOIN_H

#include "czero/join.h"

/* Joining, or leaving (`join` is NULL), for an object called `what` with so many ranks: *present becomes the join that
 * it has from now on; none if the join is disabled. CZ_ERR_STATE: it has one; CZ_ERR_ARGUMENT: other ranks. */
cz_status cz__join_enter(cz_join **present, cz_join *join, int ranks, const char *what);

/* A call of a joinable that others shadow begins (1) or ends (-1): until then no other one can, since those wait in
 * the first. */
void cz__join_hold(cz_join *join, int change);

#endif
