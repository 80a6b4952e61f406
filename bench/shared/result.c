/* SPDX-License-Identifier: MIT */
#include "result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../median.h"

static double median_of(const double *values, int count)
{
    double copy[BENCH_ROUNDS];
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return median(copy, count);
}

static bool alike(double a, double b)
{
    return a == 0 || b == 0 || (a < 1.6 * b && b < 1.6 * a);
}

static int ratios_of(const bench_samples *s, bool all, double *ratios)
{
    int count = 0;
    for (int i = 0; i < s->rounds; i++)
        if (s->ours[i] > 0 && s->limit[i] > 0 &&
            (all || alike(s->ours_bounce[i], s->limit_bounce[i])))
            ratios[count++] = s->limit[i] / s->ours[i];
    return count;
}

bench_summary bench_summarise(const bench_samples *s)
{
    bench_summary out = {.ours = median_of(s->ours, s->rounds),
                         .limit = median_of(s->limit, s->rounds)};
    double ratios[BENCH_ROUNDS], bounces[2 * BENCH_ROUNDS];
    out.kept = ratios_of(s, false, ratios);
    if (out.kept * 3 < s->rounds)
        out.kept = ratios_of(s, true, ratios);
    if (out.kept > 0) {
        out.ratio = median(ratios, out.kept); /* which puts them in order */
        out.spread = ratios[out.kept * 3 / 4] - ratios[out.kept / 4];
    }
    memcpy(bounces, s->ours_bounce, (size_t)s->rounds * sizeof *bounces);
    memcpy(bounces + s->rounds, s->limit_bounce, (size_t)s->rounds * sizeof *bounces);
    out.bounce = median(bounces, 2 * s->rounds);
    return out;
}

static const char *scaled(char text[32], double value, const char *const *units, double step)
{
    int unit = 0;
    while (units[unit + 1] && value >= step) {
        value /= step;
        unit++;
    }
    snprintf(text, 32, value < 10 && unit > 0 ? "%.2f %s" : "%.4g %s", value, units[unit]);
    return text;
}

static const char *size_text(char text[32], size_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", NULL};
    return scaled(text, (double)bytes, units, 1024);
}

static const char *time_text(char text[32], double seconds)
{
    static const char *const units[] = {"ns", "us", "ms", "s", NULL};
    return scaled(text, seconds * 1e9, units, 1000);
}

void bench_heading(const char *text)
{
    printf("\n%s\n%-26s %9s %5s  %10s %9s  %10s %9s  %6s %7s  %8s\n", text, "", "size", "ranks",
           "czero", "GB/s", "limit", "GB/s", "ratio", "spread", "latency");
}

static void say_side(double seconds, double counted)
{
    char text[32];
    if (seconds > 0)
        printf("  %10s %9.2f", time_text(text, seconds), counted / seconds * 1e-9);
    else
        printf("  %10s %9s", "", "");
}

static void write_json(const bench_row *row, const bench_summary *s)
{
    const char *path = getenv("CZ_BENCH_RESULTS");
    FILE *file = path && *path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "{\"name\": \"%s\", \"bytes\": %zu, \"ranks\": %d", row->name, row->bytes,
            row->ranks);
    if (s->ours > 0)
        fprintf(file, ", \"ours\": %.9g", s->ours);
    if (s->limit > 0)
        fprintf(file, ", \"limit\": %.9g", s->limit);
    if (s->ratio > 0)
        fprintf(file, ", \"ratio\": %.4g, \"spread\": %.3g", s->ratio, s->spread);
    fprintf(file, ", \"latency\": %.3g, \"against\": \"%s\"}\n", s->bounce, row->against);
    fclose(file);
}

void bench_record(const bench_row *row, const bench_samples *samples)
{
    const bench_summary s = bench_summarise(samples);
    write_json(row, &s);
}

void bench_say(const bench_row *row, const bench_samples *samples)
{
    const bench_summary s = bench_summarise(samples);
    const double counted = row->counted > 0 ? row->counted : (double)row->bytes;
    char text[32];
    printf("%-26s %9s %5d", row->name, size_text(text, row->bytes), row->ranks);
    say_side(s.ours, counted);
    say_side(s.limit, counted);
    if (s.ratio > 0)
        printf("  %6.2f %7.2f", s.ratio, s.spread);
    else
        printf("  %6s %7s", "", "");
    printf("  %8s  %s", s.bounce > 0 ? time_text(text, s.bounce) : "", row->against);
    if (row->wanted > 0)
        printf(" (wanted: %.2f)", row->wanted);
    printf("\n");
    fflush(stdout);
    write_json(row, &s);
}

static void usage(FILE *file, const char *program, const char *what, const bench_option *options)
{
    fprintf(file, "usage: %s [OPTION]...\n%s\n", program, what);
    for (const bench_option *o = options; o->name; o++)
        fprintf(file, "  %-12s %-6s %s\n", o->name,
                o->flag     ? ""
                : o->number ? "N"
                            : "TEXT",
                o->help);
}

static bool take(const bench_option *o, const char *value)
{
    char *end;
    if (o->flag)
        return *o->flag = true;
    if (!value)
        return false;
    if (o->text) {
        *o->text = value;
        return true;
    }
    *o->number = (int)strtol(value, &end, 10);
    return end != value && *end == '\0' && *o->number > 0;
}

void bench_arguments(int argc, char **argv, const char *what, const bench_option *options)
{
    for (int i = 1; i < argc; i++) {
        const bench_option *o = options;
        while (o->name && strcmp(o->name, argv[i]) != 0)
            o++;
        if (!o->name || !take(o, argv[i + 1])) {
            const bool asked = strcmp(argv[i], "--help") == 0;
            usage(asked ? stdout : stderr, argv[0], what, options);
            if (!asked)
                fprintf(stderr, "not understood: %s\n", argv[i]);
            exit(asked ? 0 : 2);
        }
        i += !o->flag;
    }
}
