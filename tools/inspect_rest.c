/* SPDX-License-Identifier: MIT */
/* What a checkpoint holds beside tensors. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inspect.h"
#include "io/json.h"
#include "io/stream.h"
#include "tool.h"

enum { MEMBERS = 6, FILES = 8, WIDTH = 78 };

/* ---- parameter groups ---- */

static void say_members(const cz_state_dict *group, bool all)
{
    const char *const *names;
    int64_t count;
    if (cz_state_dict_get_texts(group, "params", &names, &count) != CZ_OK)
        count = 0;
    printf("%s", show_plural(count, "parameter", "parameters").text);
    for (int64_t i = 0; i < count && (all || i < MEMBERS); i++)
        printf("%s %s", i ? "," : ":", cz__show(names[i]).text);
    printf("%s\n", !all && count > MEMBERS ? ", …" : "");
}

static void say_hypers(const cz_state_dict *group)
{
    double value;
    int column = WIDTH;
    for (int64_t i = 0; i < cz_state_dict_count(group); i++) {
        char text[160];
        const char *key = cz_state_dict_key(group, i);
        if (cz_state_dict_get_real(group, key, &value) != CZ_OK)
            continue;
        const int width = snprintf(text, sizeof text, "%s %.17g", cz__show(key).text, value);
        char shorter[160];
        double again;
        snprintf(shorter, sizeof shorter, "%.15g", value); /* 0.001 and not 0.001000…02 */
        if (sscanf(shorter, "%lf", &again) == 1 && again == value)
            snprintf(text, sizeof text, "%s %.15g", cz__show(key).text, value);
        column += width + 2;
        if (column > WIDTH) {
            printf("%s    ", i ? "\n" : "");
            column = 4 + width;
        } else
            printf(", ");
        printf("%s", text);
    }
    printf("\n");
}

/* Of a group that has one of its own; NULL: it has the optimizer's. */
static const char *rule_of(const cz_state_dict *group)
{
    const char *rule = NULL;
    if (cz_state_dict_kind(group, "rule") == CZ_STATE_TEXT)
        (void)cz_state_dict_get_text(group, "rule", &rule);
    return rule;
}

bool inspect_group_rules(const source *s)
{
    bool any = false;
    const cz_state_dict *groups, *group;
    if (cz_state_dict_kind(s->info.optimizer, "param_groups") != CZ_STATE_DICT ||
        cz_state_dict_get_dict(s->info.optimizer, "param_groups", &groups) != CZ_OK)
        return false;
    for (int64_t g = 0; g < cz_state_dict_count(groups); g++) {
        const char *key = cz_state_dict_key(groups, g);
        if (cz_state_dict_kind(groups, key) == CZ_STATE_DICT &&
            cz_state_dict_get_dict(groups, key, &group) == CZ_OK)
            any = any || rule_of(group);
    }
    return any;
}

static void say_groups(const source *s, bool all)
{
    const cz_state_dict *groups, *group;
    if (cz_state_dict_kind(s->info.optimizer, "param_groups") != CZ_STATE_DICT ||
        cz_state_dict_get_dict(s->info.optimizer, "param_groups", &groups) != CZ_OK)
        return;
    printf("\nparameter groups\n");
    for (int64_t g = 0; g < cz_state_dict_count(groups); g++) {
        const char *key = cz_state_dict_key(groups, g);
        if (cz_state_dict_kind(groups, key) != CZ_STATE_DICT ||
            cz_state_dict_get_dict(groups, key, &group) != CZ_OK)
            continue;
        printf("  %s  ", cz__show(key).text);
        if (rule_of(group))
            printf("%s, ", cz__show(rule_of(group)).text);
        say_members(group, all);
        say_hypers(group);
    }
}

/* ---- steps ---- */

bool inspect_steps(const source *s, int64_t *least, int64_t *most)
{
    bool any = false;
    const cz_state_dict *entries = NULL, *entry;
    if (cz_state_dict_kind(s->info.optimizer, "state") == CZ_STATE_DICT)
        (void)cz_state_dict_get_dict(s->info.optimizer, "state", &entries);
    for (int64_t i = 0; i < cz_state_dict_count(entries); i++) {
        int64_t step;
        const char *name = cz_state_dict_key(entries, i);
        if (cz_state_dict_kind(entries, name) != CZ_STATE_DICT ||
            cz_state_dict_get_dict(entries, name, &entry) != CZ_OK ||
            cz_state_dict_kind(entry, "step") != CZ_STATE_INTEGER ||
            cz_state_dict_get_integer(entry, "step", &step) != CZ_OK)
            continue;
        *least = !any || step < *least ? step : *least;
        *most = !any || step > *most ? step : *most;
        any = true;
    }
    return any;
}

static void say_steps(const source *s)
{
    int64_t least, most;
    if (!inspect_steps(s, &least, &most))
        return;
    if (least == most)
        printf("  every parameter that has state was updated %s\n",
               show_plural(most, "time", "times").text);
    else
        printf("  parameters were updated %" PRId64 " to %" PRId64 " times\n", least, most);
}

/* ---- dictionaries ---- */

/* A file that is not here may be on the machine of its rank; what is here and cannot be shown is
 * said. */
static json_t *take_json(cz_status status, cz_state_dict **dict, const char *prefix)
{
    json_t *json = NULL;
    const bool elsewhere = status != CZ_OK && cz__reader_missed();
    if (status == CZ_OK)
        status = cz__dict_to_json(&json, *dict, prefix, NULL, NULL);
    cz_state_dict_destroy(dict);
    if (status != CZ_OK && !elsewhere) {
        char note[600];
        snprintf(note, sizeof note, "note: a dictionary of the program's cannot be shown: %s\n",
                 cz_last_error());
        tool_say(stderr, note);
    }
    return json;
}

json_t *inspect_common(const source *s)
{
    cz_state_dict *common = NULL;
    if (s->info.foreign || s->info.torch)
        return NULL;
    return take_json(cz_archive_read_dict(s->archive, CZ_ALL_RANKS, &common), &common, "common/");
}

/* Dictionaries end in lines of "a/b/c  VALUE". */
static void say_dictionary(table *t, const json_t *dictionary, const char *path, int depth)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)dictionary, key, value)
    {
        cz__text name = {0};
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        cz__text_print(&name, "%s%s%s", path, path[0] ? "/" : "", cz__show(key).text);
        const bool tensor = json_object_get(value, CZ__DICT_JSON_TENSOR) != NULL;
        if (json_is_object(value) && !tensor && !json_object_get(value, CZ__DICT_JSON_REAL) &&
            depth < CZ_STATE_MAX_DEPTH && json_object_size(value) > 0)
            say_dictionary(t, value, cz__text_get(&name), depth + 1);
        else {
            table_row(t);
            table_cell(t, 0, "  %s", cz__text_get(&name));
            if (tensor)
                table_cell(t, 1, "a tensor");
            else
                table_cell(t, 1, "%s", text ? cz__show(text).text : "?");
        }
        cz__text_clear(&name);
        free(text);
    }
}

static void say_common(const source *s)
{
    table t = {0};
    json_t *common = inspect_common(s);
    if (json_object_size(common) > 0) {
        printf("\nsaved by the program for all ranks\n");
        say_dictionary(&t, common, "", 0);
        table_print(&t, stdout);
    }
    table_clear(&t);
    json_decref(common);
}

/* Of rank 0, as an example; its part may be on another machine. */
static void say_own(source *s)
{
    table t = {0};
    cz_state_dict *dict = NULL;
    if (!s->generation)
        return;
    json_t *own = take_json(cz_archive_read_dict(s->archive, 0, &dict), &dict, "own/");
    if (json_object_size(own) > 0) {
        printf("\nsaved by rank 0 for itself%s\n",
               s->info.world_size > 1 ? " (other ranks have theirs)" : "");
        say_dictionary(&t, own, "", 0);
        table_print(&t, stdout);
    }
    table_clear(&t);
    json_decref(own);
}

/* ---- files ---- */

cz_status inspect_files(const source *s, inspect_file visit, void *context)
{
    const char *path;
    for (int64_t i = 0; (path = cz_archive_file(s->archive, i)); i++) {
        struct stat about = {0};
        const int error = stat(path, &about) == 0 ? 0 : errno;
        const bool missing = error == ENOENT || error == ENOTDIR;
        if (error && !missing)
            return cz_fail(CZ_ERR_IO, "%s: cannot be seen: %s", path, strerror(error));
        CZ_TRY(visit(path, missing ? -1 : (int64_t)about.st_size, context));
    }
    return CZ_OK;
}

typedef struct dict_listing {
    table rows;
    int64_t count, bytes, missing;
    bool all;
} dict_listing;

static cz_status list_file(const char *path, int64_t bytes, void *context)
{
    dict_listing *l = context;
    const char *slash = strrchr(path, '/');
    l->count++;
    l->missing += bytes < 0;
    l->bytes += bytes > 0 ? bytes : 0;
    if (!l->all && l->count > FILES && bytes >= 0)
        return CZ_OK;
    table_row(&l->rows);
    table_cell(&l->rows, 0, "  %s", cz__show(slash ? slash + 1 : path).text);
    table_cell(&l->rows, 1, "%s", bytes < 0 ? "missing" : show_bytes((uint64_t)bytes).text);
    return CZ_OK;
}

static cz_status say_files(const source *s, bool all)
{
    dict_listing l = {.all = all};
    l.rows.right[1] = true;
    const cz_status status = inspect_files(s, list_file, &l);
    printf("\n%s, %s\n", show_plural(l.count, "file", "files").text,
           show_bytes((uint64_t)l.bytes).text);
    table_print(&l.rows, stdout);
    if (!all && l.count - l.missing > FILES)
        printf("  …\n");
    if (l.missing > 0)
        printf("%s missing here: they may be on the machines of their ranks; czero verify checks "
               "the rest\n",
               show_plural(l.missing, "file is", "files are").text);
    table_clear(&l.rows);
    return status;
}

cz_status inspect_rest(source *s, bool all)
{
    say_groups(s, all);
    say_steps(s);
    say_common(s);
    say_own(s);
    return say_files(s, all);
}
