/* SPDX-License-Identifier: MIT */
/* A checksum of bytes that come one piece after the other. */
#ifndef CZ_IO_CHECKSUM_H
#define CZ_IO_CHECKSUM_H

#include "io/stream.h"

typedef struct XXH3_state_s cz__checksum_state;

cz__checksum_state *cz__checksum_begin(void); /* NULL: no memory; its own, libxxhash makes it */
void cz__checksum_add(cz__checksum_state *state, const void *bytes, size_t count);
cz__checksum cz__checksum_take(cz__checksum_state *state); /* and begins anew */
void cz__checksum_end(cz__checksum_state *state);          /* accepts NULL */

#endif
