/* SPDX-License-Identifier: MIT */
/* Reads golden files: text, one record a line, cases from `case NAME` to `end`. */
#include "support/cz_test.h"

#include <errno.h>
#include <string.h>

#ifndef CZ_TEST_GOLDEN_DIR
#define CZ_TEST_GOLDEN_DIR "tests/golden"
#endif

typedef struct record {
    const char *type; /* "str", "i64", "f32", "f64" */
    const char *key;
    int64_t count;
    void *values; /* owned, but a str's */
} record;

struct cz_test_case {
    const char *name;
    record *records;
    int64_t count;
};

struct cz_test_gold {
    char *text; /* names, keys and str values point into it */
    cz_test_case *cases;
    int64_t count;
};

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t length = 0, room = 0;
    if (!file)
        return NULL;
    do {
        room = 2 * room + 4096;
        text = realloc(text, room);
        if (!text)
            break;
        length += fread(text + length, 1, room - 1 - length, file);
    } while (length == room - 1);
    if (text)
        text[length] = '\0';
    fclose(file);
    return text;
}

/* Room for one more element, zeroed, at the end: the array doubles. NULL when out of memory. */
static void *grow(void *items, int64_t count, size_t size)
{
    if ((count & (count - 1)) == 0) /* 0 and the powers of two are where it is full */
        items = realloc(items, (size_t)(count ? 2 * count : 1) * size);
    if (items)
        memset((char *)items + (size_t)count * size, 0, size);
    return items;
}

/* Cut the next word off `*line`, "" at its end. */
static char *next_word(char **line)
{
    char *word = *line, *space = strchr(word, ' ');
    *line = space ? space + 1 : word + strlen(word);
    if (space)
        *space = '\0';
    return word;
}

/* `count` values, exactly, to the end of the line. */
static bool parse_values(record *r, char *line)
{
    char *end = NULL;
    r->count = strtoll(next_word(&line), &end, 10);
    if (*end || r->count < 0 || !(r->values = calloc((size_t)r->count + 1, sizeof(double))))
        return false;
    for (int64_t i = 0; i < r->count; i++) {
        const char *word = next_word(&line);
        if (!*word)
            return false;
        if (strcmp(r->type, "i64") == 0)
            ((int64_t *)r->values)[i] = strtoll(word, &end, 10);
        else if (strcmp(r->type, "f32") == 0)
            ((float *)r->values)[i] = (float)strtod(word, &end);
        else
            ((double *)r->values)[i] = strtod(word, &end);
        if (*end)
            return false;
    }
    return *line == '\0';
}

static bool parse_record(cz_test_case *c, const char *type, char *line)
{
    record *records = grow(c->records, c->count, sizeof *records);
    if (!records)
        return false;
    c->records = records;
    record *r = &records[c->count++];
    r->type = type;
    r->key = next_word(&line);
    if (strcmp(type, "str") != 0)
        return parse_values(r, line);
    r->values = line;
    return true;
}

static bool parse_line(cz_test_gold *gold, bool *inside, char *line)
{
    static const char *const types[] = {"str", "i64", "f32", "f64"};
    if (*line == '\0' || *line == '#')
        return true;
    const char *word = next_word(&line);
    if (strcmp(word, *inside ? "end" : "case") == 0) {
        *inside = !*inside;
        if (!*inside)
            return true;
        cz_test_case *cases = grow(gold->cases, gold->count, sizeof *cases);
        if (!cases)
            return false;
        gold->cases = cases;
        cases[gold->count++].name = line;
        return true;
    }
    for (size_t i = 0; *inside && i < sizeof types / sizeof *types; i++)
        if (strcmp(word, types[i]) == 0)
            return parse_record(&gold->cases[gold->count - 1], types[i], line);
    return false;
}

static bool parse_text(cz_test_gold *gold, const char *path)
{
    bool inside = false;
    int number = 1;
    for (char *line = gold->text, *next; line; line = next, number++) {
        if ((next = strchr(line, '\n')))
            *next++ = '\0';
        if (!parse_line(gold, &inside, line)) {
            fprintf(stderr, "%s:%d: not a line of a golden file\n", path, number);
            return false;
        }
    }
    if (inside)
        fprintf(stderr, "%s: ends inside a case\n", path);
    return !inside;
}

cz_test_gold *cz_test_gold_open(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", CZ_TEST_GOLDEN_DIR, name);
    cz_test_gold *gold = calloc(1, sizeof *gold);
    if (gold && !(gold->text = read_file(path)))
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    if (!gold || !gold->text || !parse_text(gold, path))
        cz_test_gold_close(&gold);
    return gold;
}

void cz_test_gold_close(cz_test_gold **gold)
{
    if (!gold || !*gold)
        return;
    for (int64_t i = 0; i < (*gold)->count; i++) {
        cz_test_case *c = &(*gold)->cases[i];
        for (int64_t k = 0; k < c->count; k++)
            if (strcmp(c->records[k].type, "str") != 0)
                free(c->records[k].values);
        free(c->records);
    }
    free((*gold)->cases);
    free((*gold)->text);
    free(*gold);
    *gold = NULL;
}

int64_t cz_test_gold_count(const cz_test_gold *gold)
{
    return gold->count;
}

const cz_test_case *cz_test_gold_case(const cz_test_gold *gold, int64_t index)
{
    return index >= 0 && index < gold->count ? &gold->cases[index] : NULL;
}

const cz_test_case *cz_test_gold_find(const cz_test_gold *gold, const char *name)
{
    for (int64_t i = 0; i < gold->count; i++)
        if (strcmp(gold->cases[i].name, name) == 0)
            return &gold->cases[i];
    return NULL;
}

static const void *find(const cz_test_case *c, const char *type, const char *key, int64_t *count)
{
    for (int64_t k = 0; k < c->count; k++) {
        const record *r = &c->records[k];
        if (strcmp(r->type, type) == 0 && strcmp(r->key, key) == 0) {
            if (count)
                *count = r->count;
            return r->values;
        }
    }
    if (count)
        *count = 0;
    return NULL;
}

const char *cz_test_case_name(const cz_test_case *c)
{
    return c->name;
}

const char *cz_test_case_str(const cz_test_case *c, const char *key)
{
    return find(c, "str", key, NULL);
}

const int64_t *cz_test_case_i64(const cz_test_case *c, const char *key, int64_t *count)
{
    return find(c, "i64", key, count);
}

const float *cz_test_case_f32(const cz_test_case *c, const char *key, int64_t *count)
{
    return find(c, "f32", key, count);
}

const double *cz_test_case_f64(const cz_test_case *c, const char *key, int64_t *count)
{
    return find(c, "f64", key, count);
}
