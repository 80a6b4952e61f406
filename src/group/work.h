/* SPDX-License-Identifier: MIT */
/* The end of operations: continuations, and what they started. */
#ifndef CZ_GROUP_WORK_H
#define CZ_GROUP_WORK_H

#include "czero/group.h"

/* The work whose continuation runs on this thread, or NULL. */
cz_work *cz__work_current(void);

/* In a continuation: if its work has failed, it was for the reason that cz_last_error() gives. */
void cz__work_reword(void);
/* As cz_work_then(); `last`, if not NULL, is a second continuation, once all has ended that the
 * first one started, and what that started. */
cz_status cz__work_then(cz_work *work, cz_continuation first, cz_continuation last, void *context);
/* Run its continuation if it is its turn; false: not yet. Driver only. */
bool cz__work_continue(cz_work *work);
/* To CZ__PHASE_ENDED if nothing that it started is left; false: not yet. Driver only. */
bool cz__work_end(cz_work *work);
/* If it has ended, make that known and take it off the list. Driver only, with the lock. */
void cz__work_retire(cz_work *work);

#endif
