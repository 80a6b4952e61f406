/* SPDX-License-Identifier: MIT */
/* A plan as a drawing: a bar of stacked parts for each number of ranks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/open.h"
#include "guard.h"
#include "plan.h"
#include "tool.h"

enum { WIDTH = 760, ROW = 34, BAR = 22, LEFT = 110, RIGHT = 120, TOP = 70, LEGEND = 22, LINES = 8 };

/* Classes are plain, so that a page that has the drawing in it may give them other colours. */
static void write_head(FILE *f, int height)
{
    static const char style[] =
        "text { font: 13px sans-serif; fill: #1f2328; } .page { fill: #ffffff; }\n"
        ".title { font-weight: bold; } .number { font-variant-numeric: tabular-nums; }\n"
        ".parameters { fill: #0969da; } .buffers { fill: #54aeff; } .gradients { fill: #8250df; }\n"
        ".state { fill: #bc4c00; } .views { fill: #bf3989; } .hooks { fill: #9a6700; }\n"
        ".staging { fill: #1a7f37; } .tables { fill: #6e7781; }\n"
        "@media (prefers-color-scheme: dark) {\n"
        "text { fill: #e6edf3; } .page { fill: #0d1117; }\n"
        ".parameters { fill: #58a6ff; } .buffers { fill: #a5d6ff; } .gradients { fill: #bc8cff; }\n"
        ".state { fill: #f0883e; } .views { fill: #f778ba; } .hooks { fill: #d29922; }\n"
        ".staging { fill: #3fb950; } .tables { fill: #8b949e; } }\n";
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" role=\"img\" aria-label=\"memory of a rank by number of ranks\">\n"
        "<style>\n%s</style>\n<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n"
        "<text class=\"title\" x=\"20\" y=\"28\">Memory of a rank while it trains (%s)</text>\n",
        WIDTH, height, WIDTH, height, style, "the rank that needs most");
}

static bool is_used(const plan_request *r, const plan_line *line)
{
    uint64_t most = plan_number(&r->alone, line);
    for (int k = 0; k < r->world_count; k++)
        most += plan_number(&r->planned[k].most, line);
    return most > 0;
}

static void write_bar(FILE *f, const char *label, const cz_plan_memory *m, uint64_t widest, int y)
{
    double x = LEFT;
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", LEFT - 10, y + 16, label);
    for (const plan_line *line = plan_training_lines; line->key; line++) {
        const uint64_t bytes = plan_number(m, line);
        const double width = (double)bytes * (WIDTH - LEFT - RIGHT) / (double)widest;
        if (bytes == 0)
            continue;
        fprintf(f,
                "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>%s: "
                "%s</title></rect>\n",
                line->key, x, y, width, BAR, line->label, plan_bytes(bytes).text);
        x += width;
    }
    fprintf(f, "<text class=\"number\" x=\"%.2f\" y=\"%d\">%s</text>\n", x + 8, y + 16,
            plan_bytes(m->training_bytes).text);
}

static void write_legend(FILE *f, const plan_request *r, int y)
{
    int k = 0;
    for (const plan_line *line = plan_training_lines; line->key; line++) {
        if (!is_used(r, line))
            continue;
        const int x = LEFT + k % 4 * 155, row = y + k / 4 * LEGEND;
        fprintf(f,
                "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\"/><text x=\"%d\" "
                "y=\"%d\">%s</text>\n",
                line->key, x, row, x + 18, row + 11, line->label);
        k++;
    }
}

static void write_all(FILE *f, const plan_request *r)
{
    uint64_t widest = r->alone.training_bytes;
    const int rows = r->world_count + 1, height = TOP + rows * ROW + 3 * LEGEND + 10;
    char label[40];
    for (int k = 0; k < r->world_count; k++)
        if (r->planned[k].most.training_bytes > widest)
            widest = r->planned[k].most.training_bytes;
    write_head(f, height);
    write_bar(f, "one process", &r->alone, widest, TOP - 20);
    for (int k = 0; k < r->world_count; k++) {
        snprintf(label, sizeof label, "%d rank%s", r->worlds[k], r->worlds[k] == 1 ? "" : "s");
        write_bar(f, label, &r->planned[k].most, widest, TOP - 20 + (k + 1) * ROW);
    }
    write_legend(f, r, TOP + rows * ROW);
    fprintf(f, "</svg>\n");
}

/* ---- the file ---- */

/* Nothing that is there is replaced but a file, if that is wanted, and nothing of the model. */
bool plan_may_write_svg(const plan_request *r)
{
    struct stat there;
    if (guard_write(r->svg) != CZ_OK) {
        tool_trouble("czero plan", "--svg: %s", cz_last_error());
        return false;
    }
    if (lstat(r->svg, &there) != 0) {
        if (errno != ENOENT)
            tool_trouble("czero plan", "--svg: %s: %s", r->svg, strerror(errno));
        return errno == ENOENT;
    }
    const char *why = "is there already; --force replaces it";
    if (!S_ISREG(there.st_mode))
        why = "is there already, and is no file";
    else if (r->force)
        return true;
    tool_trouble("czero plan", "--svg: %s %s", r->svg, why);
    return false;
}

/* A new file beside, as others would have it: what is made is then moved to its place as a
 * whole. */
static FILE *open_beside(const char *path, char **beside)
{
    if (asprintf(beside, "%s.XXXXXX", path) < 0) {
        *beside = NULL;
        return NULL;
    }
    const mode_t mask = umask(0);
    umask(mask);
    const int file = cz__open_temporary(*beside);
    FILE *stream = file < 0 || fchmod(file, 0666 & ~mask) != 0 ? NULL : fdopen(file, "w");
    if (!stream && file >= 0) {
        const int error = errno;
        close(file);
        unlink(*beside);
        errno = error;
    }
    return stream;
}

/* 0, or the errno of what failed first. */
static int finish(FILE *f, const char *beside, const char *path)
{
    int error = ferror(f) ? errno : 0;
    if (fclose(f) != 0 && error == 0)
        error = errno;
    if (error == 0 && rename(beside, path) != 0)
        error = errno;
    if (error != 0)
        unlink(beside);
    return error;
}

bool plan_write_svg(const plan_request *r)
{
    char *beside;
    FILE *f = open_beside(r->svg, &beside);
    int error = errno;
    if (f) {
        write_all(f, r);
        error = finish(f, beside, r->svg);
    }
    free(beside);
    errno = error;
    return f && error == 0;
}
