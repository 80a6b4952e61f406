/* SPDX-License-Identifier: MIT */
/* From the path that somebody gives to what is read there. Everything here is local. */
#ifndef CZ_CHECKPOINT_OPENING_H
#define CZ_CHECKPOINT_OPENING_H

#include "checkpoint/input.h"

/* The newest complete generation in a folder, of that step if it is not below 0. Those that were passed over are added to
 * `notes`, a line each; lines that are in it already are the reason where there is no generation at all. CZ_ERR_ARGUMENT: there is none;
 * CZ_ERR_STATE: none that is complete; CZ_ERR_IO, CZ_ERR_FORMAT, CZ_ERR_UNSUPPORTED, CZ_ERR_MEMORY. The input is to be
 * closed in any case. */
cz_status cz__input_open_newest(cz__input *input, const char *folder, int64_t step,
                                cz__text *notes);

#endif
