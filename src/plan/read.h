/* SPDX-License-Identifier: MIT */
/* Lists of shapes from files, by form. */
#ifndef CZ_PLAN_READ_H
#define CZ_PLAN_READ_H

#include <stdio.h>

#include "plan/shapes.h"

/* read_text.c: append the tensors of a text. CZ_ERR_FORMAT: what is wrong in which line; CZ_ERR_IO, CZ_ERR_MEMORY. */
cz_status cz__shapes_read_text(cz_shapes *shapes, FILE *file, const char *path);

#endif
