/* SPDX-License-Identifier: MIT */
/* A plan as a table, and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/text.h"
#include "plan.h"
#include "show.h"
#include "tool.h"

const char *plan_partition_word(cz_partition partition)
{
    static const char *const words[] = {"elements", "greedy", "given", "buckets", "pieces"};
    return words[partition];
}

const char *plan_overlap_word(cz_overlap overlap)
{
    static const char *const words[] = {"none", "interleaved", "step"};
    return words[overlap];
}

#define AT(member) offsetof(cz_plan_memory, member)

const plan_line plan_training_lines[] = {
    {"parameters", "parameters", "the model itself, whole on every rank", AT(param_bytes)},
    {"buffers", "buffers", "of the model", AT(buffer_bytes)},
    {"gradients", "gradients", "one for each trainable parameter", AT(gradient_bytes)},
    {"state", "optimizer state", "what the rule keeps for each element", AT(state_bytes)},
    {"views", "buckets of values", "into which parameters have moved", AT(view_bytes)},
    {"hooks", "buckets of hooks", "gradients side by side, and in 16 bits", AT(hook_bytes)},
    {"parts", "sums of parts", "of gradients that a rank has added up", AT(part_bytes)},
    {"staging", "staging", "through which transfers pass", AT(staging_bytes)},
    {"tables", "tables", "names, spans, operations", AT(table_bytes)},
    {NULL, NULL, NULL, 0}};

const plan_line plan_beside_lines[] = {
    {"save", "+ a save", "of a checkpoint, while it lasts", AT(save_bytes)},
    {"async_save", "+ an asynchronous save", "with a copy of what is saved", AT(async_save_bytes)},
    {"export", "+ an export", "to a file that other tools read", AT(export_bytes)},
    {"consolidate", "+ consolidating", "all state on rank 0: most is rank 0",
     AT(consolidate_bytes)},
    {"consolidate_all", "+ consolidating to all", "all state on every rank",
     AT(consolidate_all_bytes)},
    {NULL, NULL, NULL, 0}};

#define NOT_COUNTED                                                                                \
    "Not counted: activations and whatever else the program itself has, such as its data.\n"

static const plan_line total = {"training", "while it trains", "the sum", AT(training_bytes)};
static const plan_line sent = {"sent", "sent in a step", "by one rank to all others",
                               AT(sent_bytes)};
static const plan_line file = {"file", "written in a save", "by one rank", AT(file_bytes)};

uint64_t plan_number(const cz_plan_memory *memory, const plan_line *line)
{
    uint64_t number;
    memcpy(&number, (const char *)memory + line->offset, sizeof number);
    return number;
}

plan_text plan_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    plan_text out;
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1023.5 && unit < 6; unit++)
        value /= 1024;
    snprintf(out.text, sizeof out.text, "%.*f %s", unit && value < 99.5 ? 1 : 0, value,
             units[unit]);
    return out;
}

/* "124,439,808" */
static plan_text count_text(int64_t count)
{
    char digits[32];
    plan_text out;
    size_t used = 0;
    const int length = snprintf(digits, sizeof digits, "%" PRId64, count);
    for (int k = 0; k < length && used + 2 < sizeof out.text; k++) {
        if (k && (length - k) % 3 == 0)
            out.text[used++] = ',';
        out.text[used++] = digits[k];
    }
    out.text[used] = 0;
    return out;
}

/* ---- what is planned ---- */

/* "1 parameter", "2 parameters" */
static void print_count(int64_t count, const char *noun)
{
    printf("%s %s%s", count_text(count).text, noun, count == 1 ? "" : "s");
}

static void print_model(const plan_request *r)
{
    const int64_t *counts = r->planned[0].info.tensors, *elements = r->planned[0].info.elements;
    printf("%s: ", show_path(r->path).text);
    print_count(counts[CZ_SHAPE_PARAM], "parameter");
    printf(" with ");
    print_count(elements[CZ_SHAPE_PARAM], "element");
    if (counts[CZ_SHAPE_FROZEN] > 0)
        printf(", %s frozen with %s", count_text(counts[CZ_SHAPE_FROZEN]).text,
               count_text(elements[CZ_SHAPE_FROZEN]).text);
    if (counts[CZ_SHAPE_BUFFER] > 0) {
        printf(", ");
        print_count(counts[CZ_SHAPE_BUFFER], "buffer");
        printf(" with %s", count_text(elements[CZ_SHAPE_BUFFER]).text);
    }
    printf("\n");
}

static void print_training(const plan_request *r)
{
    const cz_plan_options *o = &r->options;
    printf("%s%s, %s", o->rule->name, o->average ? " with averages" : "",
           o->unsharded ? "all of the state on every rank" : "the state dealt out by ");
    if (!o->unsharded)
        printf("%s, overlap %s", plan_partition_word(o->partition), plan_overlap_word(o->overlap));
    if (r->world_count == 1 && r->planned[0].info.bucket_count > 0) {
        printf(", ");
        print_count(r->planned[0].info.bucket_count, "bucket");
        printf(" of gradients");
    }
    if (o->parts > 0) {
        printf(", a batch of ");
        print_count(o->parts, "part");
    }
    printf("\n\n");
}

/* ---- one number of ranks ---- */

static void print_line(const plan_request *r, const plan_line *line, const char *mark)
{
    const planned *p = &r->planned[0];
    const uint64_t alone = plan_number(&r->alone, line), most = plan_number(&p->most, line);
    if (alone == 0 && most == 0)
        return;
    printf("%-24s%11s%12s%12s%12s   %s%s\n", line->label, alone ? plan_bytes(alone).text : "-",
           plan_bytes(plan_number(&p->least, line)).text,
           plan_bytes(plan_number(&p->mean, line)).text, plan_bytes(most).text, mark, line->remark);
}

static void print_saving(const plan_request *r)
{
    const uint64_t alone = r->alone.training_bytes, mean = r->planned[0].mean.training_bytes;
    const uint64_t apart = alone > mean ? alone - mean : mean - alone;
    printf("\nA rank needs %s %s than one process alone (%.0f %%).\n", plan_bytes(apart).text,
           alone > mean ? "less" : "more", 100.0 * (double)apart / (double)alone);
}

static void print_one(const plan_request *r)
{
    char ranks[56];
    snprintf(ranks, sizeof ranks, "each of %s ranks", count_text(r->worlds[0]).text);
    printf("%-24s%11s   %30s\n", "", "one process", ranks);
    printf("%-24s%11s%12s%12s%12s\n", "Memory", "alone", "least", "mean", "most");
    for (const plan_line *line = plan_training_lines; line->key; line++)
        print_line(r, line, "");
    print_line(r, &total, "= ");
    for (const plan_line *line = plan_beside_lines; line->key; line++)
        print_line(r, line, "");
    printf("\n");
    print_line(r, &sent, "");
    print_line(r, &file, "");
    print_saving(r);
    printf(NOT_COUNTED);
}

/* ---- several ---- */

/* The most at any time, whatever is done beside training. */
static uint64_t peak_of(const cz_plan_memory *m)
{
    uint64_t most = 0;
    for (const plan_line *line = plan_beside_lines; line->key; line++)
        most = plan_number(m, line) > most ? plan_number(m, line) : most;
    return m->training_bytes + most;
}

static void print_row(const char *ranks, const cz_plan_memory *m, uint64_t peak)
{
    const uint64_t model = m->param_bytes + m->buffer_bytes + m->gradient_bytes;
    printf("%10s%14s%14s%14s%14s%14s%14s\n", ranks, plan_bytes(model).text,
           plan_bytes(m->state_bytes).text,
           plan_bytes(m->training_bytes - model - m->state_bytes).text,
           plan_bytes(m->training_bytes).text, plan_bytes(peak).text,
           plan_bytes(m->sent_bytes).text);
}

static void print_several(const plan_request *r)
{
    printf("Memory of the rank that needs most\n%10s%14s%14s%14s%14s%14s%14s\n", "ranks", "model",
           "state", "the rest", "training", "at most", "sent a step");
    print_row("alone", &r->alone, peak_of(&r->alone));
    for (int k = 0; k < r->world_count; k++) {
        const planned *p = &r->planned[k];
        print_row(count_text(p->world_size).text, &p->most, peak_of(&p->most));
    }
    printf("\nmodel: parameters, buffers and gradients. the rest: staging, sums, buckets and "
           "tables. at most: with a save,\nan export, or all state put together. alone: one "
           "process without ranks. One number of ranks shows more.\n" NOT_COUNTED);
}

void plan_print(const plan_request *r)
{
    print_model(r);
    print_training(r);
    (r->world_count == 1 ? print_one : print_several)(r);
}

/* ---- JSON ---- */

/* A name that is not UTF-8 could not be JSON. */
static void print_text(const char *text)
{
    cz__text quoted = {0};
    const bool done = cz__text_quote(&quoted, cz__utf8(text) ? text : cz__show(text).text);
    fputs(done ? cz__text_get(&quoted) : "null", stdout);
    cz__text_clear(&quoted);
}

static void print_members(const cz_plan_memory *m)
{
    const plan_line *const ends[] = {&total, &sent, &file};
    const char *comma = "";
    printf("{");
    for (const plan_line *line = plan_training_lines; line->key; line++, comma = ", ")
        printf("%s\"%s\": %" PRIu64, comma, line->key, plan_number(m, line));
    for (const plan_line *line = plan_beside_lines; line->key; line++)
        printf(", \"%s\": %" PRIu64, line->key, plan_number(m, line));
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
        printf(", \"%s\": %" PRIu64, ends[k]->key, plan_number(m, ends[k]));
    printf("}");
}

static void print_world(const planned *p)
{
    const struct {
        const char *name;
        const cz_plan_memory *memory;
    } parts[] = {
        {"least", &p->least}, {"most", &p->most}, {"mean", &p->mean}, {"rank0", &p->first}};
    printf("    {\"ranks\": %d, \"buckets\": %d", p->world_size, p->info.bucket_count);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        printf(",\n     \"%s\": ", parts[k].name);
        print_members(parts[k].memory);
    }
    printf("}");
}

void plan_print_json(const plan_request *r)
{
    static const char *const kinds[] = {"parameters", "frozen", "buffers"};
    printf("{\n  \"path\": ");
    print_text(r->path);
    printf(",\n  \"rule\": \"%s\", \"unsharded\": %s, \"partition\": \"%s\", \"overlap\": \"%s\"",
           r->options.rule->name, r->options.unsharded ? "true" : "false",
           plan_partition_word(r->options.partition), plan_overlap_word(r->options.overlap));
    for (cz_shape_kind k = CZ_SHAPE_PARAM; k <= CZ_SHAPE_BUFFER; k++)
        printf(",\n  \"%s\": {\"count\": %" PRId64 ", \"elements\": %" PRId64 "}", kinds[k],
               r->planned[0].info.tensors[k], r->planned[0].info.elements[k]);
    printf(",\n  \"alone\": ");
    print_members(&r->alone);
    printf(",\n  \"worlds\": [\n");
    for (int k = 0; k < r->world_count; k++) {
        print_world(&r->planned[k]);
        printf("%s\n", k + 1 < r->world_count ? "," : "");
    }
    printf("  ]\n}\n");
}
