/* SPDX-License-Identifier: MIT */
/* Lines for the log sink. */
#ifndef CZ_BASE_LOG_H
#define CZ_BASE_LOG_H

#include "czero/base.h"

void cz__log(cz_log_level level, const char *format, ...) CZ_PRINTF(2, 3);

#endif
