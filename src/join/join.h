/* SPDX-License-Identifier: MIT */
/* Joins for the library's own joinables. */
#ifndef CZ_JOIN_JOIN_H
#define CZ_JOIN_JOIN_H

#include "czero/join.h"
#include "operation/identity.h"

/* Joining as joinable `number`, or leaving (`join` is NULL), for an object called `what` whose
 * ranks are those of `group`: *present becomes the join that it has from now on; none if the join
 * is disabled. Ranks compare which object it is. CZ_ERR_STATE: it has one; CZ_ERR_ARGUMENT: this is
 * another rank there, or of others. */
cz_status cz__join_enter(cz_join **present, cz_join *join, int number, const cz_group *group,
                         const cz__object *object, const char *what);

/* A call of a joinable that others shadow begins (1) or ends (-1): until then no other one can,
 * since those wait in the first. */
void cz__join_hold(cz_join *join, int change);

/* As their names say; what is not there is NULL, 0 or -1. */
int cz__join_active_count(const cz_join *join);
cz_join_divide cz__join_division(const cz_join *join);
int cz__join_last(const cz_join *join);
int cz__join_source(const cz_join *join);
const cz_step_options *cz__join_step(const cz_join *join);

#endif
