/* SPDX-License-Identifier: MIT */
/* What other programs wrote beside the tensors: shown, and compared. */
#ifndef CZ_TOOLS_METADATA_H
#define CZ_TOOLS_METADATA_H

#include "diff.h"

/* Texts under texts: a new reference. */
json_t *metadata_json(const source *s);
/* Lines for a head; a few of many. */
void metadata_say(const source *s, bool all);
/* A note if a file of torch, which has no place for them, is written. */
void metadata_say_lost(const source *s);
/* Notes on what differs. */
cz_status metadata_compare(comparison *c);

#endif
