/* SPDX-License-Identifier: MIT */
/* The same training with several communication hooks. */
#ifndef COMPARE_H
#define COMPARE_H

#include "train.h"

/* One run for each of the options' hooks, then their tables, summary.json and loss.svg.
 * Collective. */
cz_status compare(cz_group *world, const task *job);

#endif
