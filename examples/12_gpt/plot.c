/* SPDX-License-Identifier: MIT */
/* The loss curves as an SVG. Colours follow the reader's light or dark setting. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

enum { WIDTH = 760, HEIGHT = 440, LEFT = 70, RIGHT = 20, TOP = 46, BOTTOM = 56, WIDEST = 700 };

typedef struct axes {
    double steps;     /* x runs from 0 to this */
    double low, high; /* y */
    double tick;
} axes;

/* 1, 2 or 5 times a power of ten, so that about `count` ticks fit into `range`. */
static double nice_tick(double range, int count)
{
    const double raw = range / count, power = pow(10, floor(log10(raw)));
    const double lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static void widen(axes *a, const curve *c)
{
    for (int i = 0; i < c->count; i++) {
        const point *p = &c->points[i];
        a->steps = fmax(a->steps, p->step);
        if (!isfinite(p->value))
            continue;
        a->low = fmin(a->low, p->value);
        a->high = fmax(a->high, p->value);
    }
}

static axes choose_axes(const curve *const *curves, int count)
{
    axes a = {.steps = 1, .low = INFINITY, .high = -INFINITY};
    for (int k = 0; k < count; k++)
        widen(&a, curves[k]);
    if (!isfinite(a.low))
        a.low = 0, a.high = 1;
    const double least = fmax(1, fabs(a.low)); /* of a flat curve */
    if (a.high - a.low < 1e-6 * least)
        a.high = a.low + least;
    a.tick = nice_tick(a.high - a.low, 6);
    a.low = floor(a.low / a.tick) * a.tick;
    a.high = ceil(a.high / a.tick) * a.tick;
    return a;
}

static double x_of(const axes *a, double step)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * step / a->steps;
}

static double y_of(const axes *a, double value)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (a->high - value) / (a->high - a->low);
}

static void write_head(FILE *f)
{
    static const char style[] =
        "text { font: 13px sans-serif; fill: #1f2328; } .page { fill: #ffffff; }\n"
        ".grid { stroke: #d8dee4; } .axis { stroke: #1f2328; fill: none; }\n"
        ".train { fill: none; stroke: #0969da; stroke-width: 1.5; }\n"
        ".val { fill: none; stroke: #bc4c00; stroke-width: 2.5; } .dot { fill: #bc4c00; }\n"
        ".resumed { fill: none; stroke: #1f2328; stroke-dasharray: 5 4; }\n"
        "@media (prefers-color-scheme: dark) {\n"
        "text { fill: #e6edf3; } .page { fill: #0d1117; } .grid { stroke: #30363d; }\n"
        ".axis, .resumed { stroke: #e6edf3; } .train { stroke: #58a6ff; } .val { stroke: #f0883e; "
        "}\n"
        ".dot { fill: #f0883e; } }\n";
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\" aria-label=\"training and validation loss over steps\">\n"
            "<style>\n%s</style>\n<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, style);
}

static void write_axes(FILE *f, const axes *a)
{
    for (double v = a->low; v < a->high + a->tick / 2; v += a->tick)
        fprintf(f,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                LEFT, WIDTH - RIGHT, y_of(a, v), y_of(a, v), LEFT - 8, y_of(a, v) + 4,
                fabs(v) < a->tick / 2 ? 0 : v);
    const double tick = fmax(1, nice_tick(a->steps, 8));
    for (double s = 0; s <= a->steps; s += tick)
        fprintf(f,
                "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
                x_of(a, s), x_of(a, s), HEIGHT - BOTTOM, HEIGHT - BOTTOM + 5, x_of(a, s),
                HEIGHT - BOTTOM + 21, s);
    fprintf(f,
            "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n"
            "<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">"
            "loss (nats per character)</text>\n",
            LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14,
            (TOP + HEIGHT - BOTTOM) / 2);
}

/* A line through the curve; with more points than `widest`, through the means of neighbours. */
static void write_curve(FILE *f, const axes *a, const curve *c, const char *attributes, int widest)
{
    const int each = (c->count + widest - 1) / widest;
    bool drawing = false;
    fprintf(f, "<path %s d=\"", attributes);
    for (int i = 0; i < c->count; i += each) {
        double step = 0, value = 0;
        const int end = i + each < c->count ? i + each : c->count;
        for (int k = i; k < end; k++) {
            step += c->points[k].step;
            value += c->points[k].value;
        }
        step /= end - i;
        value /= end - i;
        if (isfinite(value))
            fprintf(f, "%c%.1f %.1f", drawing ? 'L' : 'M', x_of(a, step), y_of(a, value));
        drawing = isfinite(value);
    }
    fprintf(f, "\"/>\n");
}

static void write_dots(FILE *f, const axes *a, const curve *c)
{
    for (int i = 0; i < c->count; i++)
        if (isfinite(c->points[i].value))
            fprintf(f, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n",
                    x_of(a, c->points[i].step), y_of(a, c->points[i].value));
}

static void write_legend(FILE *f, const curve *validation)
{
    fprintf(f,
            "<path class=\"train\" d=\"M%d 24h28\"/><text x=\"%d\" y=\"28\">training</text>\n"
            "<path class=\"val\" d=\"M%d 24h28\"/><text x=\"%d\" y=\"28\">validation",
            LEFT, LEFT + 36, LEFT + 120, LEFT + 156);
    const double end = validation->count ? validation->points[validation->count - 1].value : NAN;
    if (isfinite(end))
        fprintf(f, " (%.3f at the end)", end);
    fprintf(f, "</text>\n");
}

static FILE *open_plot(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        (void)cz_fail(CZ_ERR_IO, "%s: %s", path, strerror(errno));
    return f;
}

static cz_status close_plot(FILE *f, const char *path)
{
    fprintf(f, "</svg>\n");
    const bool bad = ferror(f) != 0;
    if (fclose(f) || bad)
        return cz_fail(CZ_ERR_IO, "%s: %s", path, strerror(errno));
    return CZ_OK;
}

/* A line where the run went on, and on how many ranks. */
static void write_resumed(FILE *f, const axes *a, const curve *resumed)
{
    for (int i = 0; i < resumed->count; i++) {
        const double x = x_of(a, resumed->points[i].step);
        const bool left = x > WIDTH / 2;
        fprintf(f,
                "<path class=\"resumed\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"%s\">resumed on %.0f rank%s</text>\n",
                x, TOP, HEIGHT - BOTTOM, x + (left ? -6 : 6), TOP + 14, left ? "end" : "start",
                resumed->points[i].value, resumed->points[i].value > 1 ? "s" : "");
    }
}

cz_status plot_write(const char *path, const history *h)
{
    const curve *train = &h->train, *validation = &h->validation;
    FILE *f = open_plot(path);
    if (!f)
        return CZ_ERR_IO;
    const axes a = choose_axes((const curve *const[]){train, validation}, 2);
    write_head(f);
    write_axes(f, &a);
    write_resumed(f, &a, &h->resumed);
    if (train->count)
        write_curve(f, &a, train, "class=\"train\"", WIDEST);
    if (validation->count)
        write_curve(f, &a, validation, "class=\"val\"", WIDEST);
    write_dots(f, &a, validation);
    write_legend(f, validation);
    return close_plot(f, path);
}

/* Eight colours that are told apart by most eyes and on light and dark pages, then the same with
 * dashes. */
static void line_of(int k, char *attributes, size_t bytes)
{
    static const char *const colours[] = {"#888888", "#0072b2", "#e69f00", "#009e73",
                                          "#cc79a7", "#d55e00", "#56b4e9", "#b8a90c"};
    snprintf(attributes, bytes, "class=\"run\" fill=\"none\" stroke-width=\"1.8\" stroke=\"%s\"%s",
             colours[k % 8], k < 8 ? "" : " stroke-dasharray=\"6 3\"");
}

/* In the upper right, where falling curves leave room; many in two columns. */
static void write_names(FILE *f, const char *const *names, int count)
{
    enum { ROW = 18, LINE = 28, COLUMN = 236, ROWS = 7 };
    const int rows = count > ROWS ? (count + 1) / 2 : count;
    for (int k = 0; k < count; k++) {
        char attributes[160];
        const int y = TOP + 16 + ROW * (k % rows);
        const int x = WIDTH - RIGHT - COLUMN * (count > rows && k < rows ? 2 : 1);
        line_of(k, attributes, sizeof attributes);
        fprintf(f, "<path %s d=\"M%d %dh%d\"/><text x=\"%d\" y=\"%d\">%s</text>\n", attributes, x,
                y, LINE, x + LINE + 8, y + 4, names[k]);
    }
}

/* Means of many points: noise of batches, which is the same in all, hides what differs. */
cz_status plot_compare(const char *path, const curve *const *curves, const char *const *names,
                       int count)
{
    enum { POINTS = 100 };
    FILE *f = open_plot(path);
    if (!f)
        return CZ_ERR_IO;
    const axes a = choose_axes(curves, count);
    write_head(f);
    write_axes(f, &a);
    for (int k = 0; k < count; k++) {
        char attributes[160];
        line_of(k, attributes, sizeof attributes);
        if (curves[k]->count)
            write_curve(f, &a, curves[k], attributes, POINTS);
    }
    write_names(f, names, count);
    return close_plot(f, path);
}
