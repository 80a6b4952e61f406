/* SPDX-License-Identifier: MIT */
/* What other programs wrote beside the tensors. "format" says in which framework's order a file is:
 * all that this library writes have it, so it is nothing to show. */
#include "metadata.h"

#include <stdio.h>
#include <string.h>

enum { FEW = 8 };

static bool is_plain(const char *key, const json_t *value)
{
    return strcmp(key, "format") == 0 && strcmp(json_string_value(value), "pt") == 0;
}

json_t *metadata_json(const source *s)
{
    const char *key, *text;
    json_t *all = json_object();
    for (int64_t i = 0; (text = cz_archive_note(s->archive, i, &key)); i++)
        json_object_set_new(all, key, json_string(text));
    return all;
}

void metadata_say(const source *s, bool all)
{
    const char *key;
    json_t *value;
    int64_t count = 0;
    json_t *metadata = metadata_json(s);
    json_object_foreach(metadata, key, value)
    {
        const char *const text = json_string_value(value);
        if (is_plain(key, value) || (!all && count++ >= FEW))
            continue;
        const bool tied =
            cz_archive_find(s->archive, key) < 0 && cz_archive_find(s->archive, text) >= 0;
        printf("  %s  %s: %s%s\n", tied ? "tied name  " : "beside     ", cz__show(key).text,
               tied ? "is " : "", cz__show(text).text);
    }
    json_decref(metadata);
    if (count > FEW)
        printf("  beside       and %s; --all lists each\n",
               show_plural(count - FEW, "other", "others").text);
}

void metadata_say_lost(const source *s)
{
    const char *key;
    json_t *value, *metadata = metadata_json(s);
    int count = 0;
    json_object_foreach(metadata, key, value)
    {
        count += is_plain(key, value) ? 0 : 1;
    }
    json_decref(metadata);
    if (count > 0)
        fprintf(stderr,
                "note: %s beside the tensors, which other programs wrote, have no place in a file "
                "of torch, and are left out\n",
                show_plural(count, "text", "texts").text);
}

static cz_status compare_side(comparison *c, json_t *a, json_t *b, const char *side, bool both)
{
    const char *key;
    json_t *value;
    json_object_foreach(a, key, value)
    {
        json_t *const other = json_object_get(b, key);
        if (!other && !is_plain(key, value))
            CZ_TRY(diff_note(c, "beside the tensors, '%s': only in %s", cz__show(key).text, side));
        if (other && both && !json_equal(value, other))
            CZ_TRY(diff_note(c, "beside the tensors, '%s': '%s' in A, '%s' in B",
                             cz__show(key).text, cz__show(json_string_value(value)).text,
                             cz__show(json_string_value(other)).text));
    }
    return CZ_OK;
}

cz_status metadata_compare(comparison *c)
{
    json_t *const a = metadata_json(c->a), *const b = metadata_json(c->b);
    cz_status status = compare_side(c, a, b, "A", true);
    if (status == CZ_OK)
        status = compare_side(c, b, a, "B", false);
    json_decref(a);
    json_decref(b);
    return status;
}
