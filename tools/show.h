/* SPDX-License-Identifier: MIT */
/* Numbers, shapes and tables for people. */
#ifndef CZ_TOOL_SHOW_H
#define CZ_TOOL_SHOW_H

#include <stdio.h>

#include "io/text.h"

typedef struct shown {
    char text[200];
} shown;

/* A path, whole, where cz__show() would cut it: what a terminal would obey, and ends of lines, are
 * "?". */
typedef struct shown_path {
    char text[4352]; /* the longest path, and the name of a file in it */
} shown_path;
shown_path show_path(const char *path);

shown show_bytes(uint64_t bytes);                       /* "1.2 MiB" */
shown show_count(int64_t count);                        /* "1,234,567" */
shown show_shape(int dimensions, const int64_t *shape); /* "[5, 8]" */
shown show_ranks(int first, int last);                  /* "rank 0", "ranks 0-2" */
shown show_plural(int64_t count, const char *one, const char *many);

/* A table: rows of cells; columns get as wide as they must. Zeroed is empty. */
enum { TABLE_COLUMNS = 8 };
typedef struct table {
    cz__text *cells; /* owned, TABLE_COLUMNS for each row */
    int64_t rows, capacity;
    bool right[TABLE_COLUMNS]; /* numbers stand at the right */
    bool failed;
} table;

/* A new row, and its next cell (texts are shown as they are: names through cz__show()). */
void table_row(table *t);
void table_cell(table *t, int column, const char *format, ...) CZ_PRINTF(3, 4);
void table_print(const table *t, FILE *stream);
void table_clear(table *t);

#endif
