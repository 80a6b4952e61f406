/* SPDX-License-Identifier: MIT */
/* Elements that are missing, or there twice, are found in the names of the parts' tensors. */
#include "interop/archive.h"

#include <stdio.h>
#include <string.h>

#include "support/cz_test.h"

enum { COUNT = 10 };

/* One parameter "w" of 10 elements, with or without a slot "m", and a buffer "b" of 3. */
typedef struct setting {
    cz__index index;
    cz__stored stored[2];
    cz__coverage coverage;
    cz__safetensors *parts[4];
    int count;
    char said[2000];
} setting;

static void open_setting(setting *s, bool state)
{
    cz_state_dict *entries, *entry;
    *s = (setting){.stored = {{.name = "w", .dtype = CZ_F32, .dimensions = 1, .count = COUNT},
                              {.name = "b", .dtype = CZ_F32, .dimensions = 1, .count = 3}}};
    s->index.stored = s->stored;
    s->index.param_count = s->index.buffer_count = 1;
    if (!state)
        return;
    assert_ok(cz_state_dict_create(&s->index.optimizer));
    assert_ok(cz_state_dict_add_dict(s->index.optimizer, "state", &entries));
    assert_ok(cz_state_dict_add_dict(entries, "w", &entry));
    assert_ok(cz_state_dict_set_text(entry, "m", "f32"));
    s->index.entries = entries;
}

static void close_setting(setting *s)
{
    cz__coverage_clear(&s->coverage);
    cz_state_dict_destroy(&s->index.optimizer);
    for (int i = 0; i < s->count; i++)
        cz__safetensors_destroy(&s->parts[i]);
}

/* A part with tensors of these names, the last one NULL. */
static void add_part(setting *s, const char *const *names)
{
    const int64_t one = 1;
    cz__safetensors **part = &s->parts[s->count];
    assert_ok(cz__safetensors_create(part));
    for (; *names; names++)
        assert_ok(cz__safetensors_add(*part, *names, CZ_F32, 1, &one));
    assert_ok(cz__coverage_add(&s->coverage, *part, s->count++));
}
#define PART(s, ...) add_part(s, (const char *const[]){__VA_ARGS__, NULL})

static cz_status note(const char *sentence, void *context)
{
    setting *s = context;
    const size_t at = strlen(s->said);
    snprintf(s->said + at, sizeof s->said - at, "%s\n", sentence);
    return CZ_OK;
}

static void check(setting *s, const char *wanted)
{
    assert_ok(cz__coverage_check(&s->coverage, &s->index, note, s));
    if (wanted[0] ? !strstr(s->said, wanted) : s->said[0] != 0)
        fail_msg("said '%s', wanted '%s'", s->said, wanted);
    close_setting(s);
}

TEST(every_element_once)
{
    setting s;
    open_setting(&s, true);
    PART(&s, "parameters/w[4:10]", "optimizer/m/w[4:10]", "own/x[0:4]");
    PART(&s, "parameters/w[0:4]", "optimizer/m/w[0:4]", "buffers/b[0:3]");
    check(&s, "");
}

TEST(a_gap)
{
    setting s;
    open_setting(&s, false);
    PART(&s, "parameters/w[0:4]", "buffers/b[0:3]");
    PART(&s, "parameters/w[6:10]");
    check(&s, "parameters/w: elements 4 to 5 are in no part");
    open_setting(&s, false);
    PART(&s, "parameters/w[0:9]", "buffers/b[0:3]");
    check(&s, "parameters/w: elements 9 to 9 are in no part");
    open_setting(&s, false);
    PART(&s, "parameters/w[0:10]");
    check(&s, "buffers/b: elements 0 to 2 are in no part");
    open_setting(&s, true);
    PART(&s, "parameters/w[0:10]", "buffers/b[0:3]");
    check(&s, "optimizer/m/w: elements 0 to 9 are in no part");
}

TEST(twice)
{
    setting s;
    open_setting(&s, false);
    PART(&s, "parameters/w[0:6]", "buffers/b[0:3]");
    PART(&s, "parameters/w[5:10]");
    check(&s,
          "parameters/w: elements 5 to 5 are there more than once, again in the part of rank 1");
    open_setting(&s, false);
    PART(&s, "parameters/w[0:10]", "buffers/b[0:3]", "parameters/w[2:3]");
    check(&s, "parameters/w: elements 2 to 2 are there more than once");
}

TEST(what_belongs_to_nothing)
{
    setting s;
    open_setting(&s, false);
    PART(&s, "parameters/w[0:10]", "buffers/b[0:3]", "parameters/x[0:1]", "optimizer/m/w[0:10]");
    check(&s, "2 tensors of the parts belong to nothing");
    open_setting(&s, false);
    PART(&s, "parameters/w[0:11]", "buffers/b[0:3]");
    check(&s, "the parts have elements up to 11, the index has 10");
}
