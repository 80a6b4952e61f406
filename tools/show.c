/* SPDX-License-Identifier: MIT */
/* Numbers, shapes and tables for people. */
#include "show.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/memory.h"

shown_path show_path(const char *path)
{
    shown_path s;
    char *to = s.text, *const end = s.text + sizeof s.text - 1;
    for (size_t length; *path && to + 8 < end; path += length) {
        bool plain;
        length = cz__character(path, &plain);
        if (plain)
            memcpy(to, path, length);
        else
            *to = '?';
        to += plain ? length : 1;
    }
    snprintf(to, 4, "%s", *path ? "…" : "");
    return s;
}

shown show_bytes(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    shown s;
    double number = (double)bytes;
    int unit = 0;
    for (; number >= 1024 && unit < 6; unit++)
        number /= 1024;
    if (unit == 0)
        snprintf(s.text, sizeof s.text, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    else
        snprintf(s.text, sizeof s.text, number < 100 ? "%.1f %s" : "%.0f %s", number, units[unit]);
    return s;
}

shown show_count(int64_t count)
{
    shown s = {""};
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, count);
    const size_t length = strlen(digits);
    char *to = s.text;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return s;
}

shown show_shape(int dimensions, const int64_t *shape)
{
    shown s = {"["};
    size_t at = 1;
    for (int d = 0; d < dimensions && at < sizeof s.text - 30; d++)
        at += (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%" PRId64, d ? ", " : "",
                               shape[d]);
    snprintf(s.text + at, sizeof s.text - at, "]");
    return s;
}

shown show_ranks(int first, int last)
{
    shown s = {"nobody"};
    if (first >= 0 && first == last)
        snprintf(s.text, sizeof s.text, "rank %d", first);
    else if (first >= 0)
        snprintf(s.text, sizeof s.text, "ranks %d-%d", first, last);
    return s;
}

shown show_plural(int64_t count, const char *one, const char *many)
{
    shown s;
    snprintf(s.text, sizeof s.text, "%.40s %.60s", show_count(count).text, count == 1 ? one : many);
    return s;
}

/* ---- tables ---- */

void table_row(table *t)
{
    cz__text *cells = cz__grow(t->cells, t->rows, &t->capacity, TABLE_COLUMNS * sizeof *cells);
    t->failed = t->failed || !cells;
    if (!cells)
        return;
    t->cells = cells;
    memset(t->cells + t->rows * TABLE_COLUMNS, 0, TABLE_COLUMNS * sizeof *cells);
    t->rows++;
}

void table_cell(table *t, int column, const char *format, ...)
{
    char text[512];
    va_list args;
    if (t->rows == 0)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!cz__text_print(&t->cells[(t->rows - 1) * TABLE_COLUMNS + column], "%s", text))
        t->failed = true;
}

/* Characters, not bytes. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_row(const table *t, int64_t row, const int *widths, FILE *stream)
{
    const cz__text *cells = t->cells + row * TABLE_COLUMNS;
    int last = TABLE_COLUMNS - 1;
    while (last > 0 && cells[last].count == 0)
        last--;
    for (int c = 0; c <= last; c++) {
        const char *text = cz__text_get(&cells[c]);
        const int space = widths[c] - width_of(text);
        if (widths[c] == 0)
            continue;
        if (t->right[c])
            fprintf(stream, "%*s%s", space, "", text);
        else
            fprintf(stream, "%s%*s", text, c < last ? space : 0, "");
        if (c < last)
            fputs("  ", stream);
    }
    fputc('\n', stream);
}

void table_print(const table *t, FILE *stream)
{
    int widths[TABLE_COLUMNS] = {0};
    for (int64_t i = 0; i < t->rows * TABLE_COLUMNS; i++) {
        const int width = width_of(cz__text_get(&t->cells[i]));
        if (width > widths[i % TABLE_COLUMNS])
            widths[i % TABLE_COLUMNS] = width;
    }
    for (int64_t row = 0; row < t->rows; row++)
        print_row(t, row, widths, stream);
}

void table_clear(table *t)
{
    for (int64_t i = 0; i < t->rows * TABLE_COLUMNS; i++)
        cz__text_clear(&t->cells[i]);
    cz__free(t->cells);
    *t = (table){0};
}
