/* SPDX-License-Identifier: MIT */
/* Joins for the library's own joinables. */
#ifndef CZ_JOIN_JOIN_H
#define CZ_JOIN_JOIN_H

#include "czero/join.h"

/* Nothing is exchanged: as if there were none. */
bool cz__join_is_disabled(const cz_join *join);

/* A call of a joinable that others shadow begins (1) or ends (-1): until then no other one can, since those wait in
 * the first. */
void cz__join_hold(cz_join *join, int change);

#endif
