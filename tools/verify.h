/* SPDX-License-Identifier: MIT */
/* czero verify, in parts. */
#ifndef CZ_TOOL_VERIFY_H
#define CZ_TOOL_VERIFY_H

#include "run_log.h"
#include "source.h"

/* How a checkpoint is found in the log of its run. */
typedef struct verify_proof {
    uint64_t print[2]; /* of the checkpoint */
    bool in_log; /* the log has a fingerprint of its step; otherwise the checkpoint has it itself */
    int64_t links; /* of the chain up to that step */
} verify_proof;

/* Told of what does not fit, in a sentence. What it returns but CZ_OK ends it, and is returned. */
typedef cz_status (*verify_told)(const char *sentence, void *context);

/* Compare a checkpoint with the log of the run that saved it: its fingerprint, the chain of those
 * before it, and what the checkpoint has of them in its common dictionary's "proof".
 * CZ_ERR_ARGUMENT: it has no step, or neither has a fingerprint of it; as
 * cz_archive_fingerprint(). */
cz_status verify_proof_of(const source *s, const run_log *log, verify_told told, void *context,
                          verify_proof *out);

#endif
