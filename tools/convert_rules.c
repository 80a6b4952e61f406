/* SPDX-License-Identifier: MIT */
/* Reading rules for names and shapes, and trying them on a name. */
#include "convert_rules.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "io/json.h"
#include "io/stream.h"

enum { MOST_FILE = 16 << 20 };

cz_status convert_rules_add(convert_rules *rules, const char *text, bool is_prefix)
{
    name_rule *names =
        cz__grow(rules->names, rules->name_count, &rules->name_capacity, sizeof *names);
    if (!names)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a rule");
    rules->names = names;
    names[rules->name_count++] = (name_rule){.text = text, .is_prefix = is_prefix};
    return CZ_OK;
}

void convert_rules_clear(convert_rules *rules)
{
    for (int64_t i = 0; i < rules->name_count; i++) {
        pattern_clear(&rules->names[i].from);
        pattern_clear(&rules->names[i].to);
    }
    for (int64_t i = 0; i < rules->shape_count; i++) {
        for (int64_t k = 0; k < rules->shapes[i].piece_count; k++)
            pattern_clear(&rules->shapes[i].pieces[k].name);
        pattern_clear(&rules->shapes[i].from);
        cz__free(rules->shapes[i].text);
        cz__free(rules->shapes[i].pieces);
    }
    cz__free(rules->names);
    cz__free(rules->shapes);
    *rules = (convert_rules){0};
}

/* ---- of names ---- */

/* Where FROM ends; NULL: there is no '=' that is not quoted. */
static const char *find_equals(const char *text)
{
    for (; *text; text++) {
        if (*text == '=')
            return text;
        if (*text == '\\' && text[1])
            text++;
    }
    return NULL;
}

static cz_status read_rename(name_rule *rule)
{
    const char *equals = find_equals(rule->text);
    if (!equals)
        return cz_fail(CZ_ERR_ARGUMENT, "wanted: FROM=TO");
    CZ_TRY(pattern_parse(&rule->from, rule->text, (size_t)(equals - rule->text)));
    CZ_TRY(pattern_parse(&rule->to, equals + 1, strlen(equals + 1)));
    if (rule->to.stars > rule->from.stars)
        return cz_fail(CZ_ERR_ARGUMENT, "TO has %d stars, and FROM %d", rule->to.stars,
                       rule->from.stars);
    return CZ_OK;
}

static cz_status read_name_rule(name_rule *rule)
{
    const cz_status status = rule->is_prefix
                                 ? pattern_parse(&rule->from, rule->text, strlen(rule->text))
                                 : read_rename(rule);
    if (!status && rule->is_prefix && rule->from.stars > 0)
        return cz_fail(CZ_ERR_ARGUMENT,
                       "--strip-prefix '%s': a star has no meaning here; see "
                       "--rename",
                       rule->text);
    return status == CZ_OK || status == CZ_ERR_MEMORY
               ? status
               : cz_fail(status, "%s '%s': %s", rule->is_prefix ? "--strip-prefix" : "--rename",
                         rule->text, cz_last_error());
}

/* ---- of shapes ---- */

static cz_status wrong(const convert_rules *rules, const char *name, const char *what)
{
    return cz_fail(CZ_ERR_FORMAT, "%s: '%s': %s", rules->path, cz__show(name).text, what);
}

static cz_status read_shape(const convert_rules *rules, const char *name, const json_t *list,
                            piece_rule *piece)
{
    int unknown = 0;
    if (!json_is_array(list) || json_array_size(list) > CZ_MAX_DIMENSIONS)
        return wrong(rules, name, "wanted: a shape, a list of 8 whole numbers at most");
    piece->dimensions = (int)json_array_size(list);
    for (int d = 0; d < piece->dimensions; d++) {
        const json_t *size = json_array_get(list, (size_t)d);
        piece->shape[d] = json_integer_value(size);
        unknown += piece->shape[d] == -1;
        if (!json_is_integer(size) || piece->shape[d] < -1)
            return wrong(rules, name, "its shape has something that is no size");
    }
    return unknown > 1 ? wrong(rules, name, "its shape has -1 more than once") : CZ_OK;
}

/* With a star more than what it is made of, which numbers the pieces along the first dimension. */
static cz_status check_stars(const convert_rules *rules, const shape_rule *rule, const char *name,
                             const piece_rule *piece)
{
    if (piece->name.stars > rule->from.stars + 1)
        return wrong(rules, name, "it has two stars or more than the name that it is made of");
    if (piece->name.stars > rule->from.stars && piece->dimensions == 0)
        return wrong(rules, name, "there is no dimension for its star");
    return CZ_OK;
}

static cz_status read_pieces(const convert_rules *rules, shape_rule *rule, json_t *object)
{
    const char *name;
    json_t *list;
    rule->pieces = cz__calloc(json_object_size(object), sizeof *rule->pieces);
    if (!rule->pieces)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a rule");
    json_object_foreach(object, name, list)
    {
        piece_rule *piece = &rule->pieces[rule->piece_count++];
        CZ_TRY(pattern_parse(&piece->name, name, strlen(name)));
        CZ_TRY(read_shape(rules, name, list, piece));
        CZ_TRY(check_stars(rules, rule, name, piece));
        for (int d = 0; d < piece->dimensions; d++)
            if (piece->shape[d] < 0)
                return wrong(rules, name, "-1 is for a tensor that is not split");
    }
    return rule->piece_count > 0 ? CZ_OK : wrong(rules, rule->text, "is split into nothing");
}

static cz_status read_shape_rule(convert_rules *rules, const char *name, json_t *value)
{
    shape_rule *shapes =
        cz__grow(rules->shapes, rules->shape_count, &rules->shape_capacity, sizeof *shapes);
    if (!shapes)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a rule");
    rules->shapes = shapes;
    shape_rule *rule = &shapes[rules->shape_count++];
    *rule = (shape_rule){.text = cz__strdup(name)};
    if (!rule->text)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a rule");
    CZ_TRY(pattern_parse(&rule->from, name, strlen(name)));
    if (json_is_object(value))
        return read_pieces(rules, rule, value);
    rule->pieces = cz__calloc(1, sizeof *rule->pieces);
    if (!rule->pieces)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a rule");
    rule->piece_count = 1;
    return read_shape(rules, name, value, rule->pieces);
}

static cz_status read_file(convert_rules *rules)
{
    char *bytes = NULL;
    const char *name;
    size_t count;
    json_t *root = NULL, *value;
    cz_status status = cz__file_read(rules->path, MOST_FILE, &bytes, &count);
    if (!status)
        status = cz__json_parse(&root, rules->path, bytes, count);
    cz__free(bytes);
    CZ_TRY(status);
    json_object_foreach(root, name, value)
    {
        status = read_shape_rule(rules, name, value);
        if (status == CZ_ERR_ARGUMENT) /* of a pattern */
            status = wrong(rules, name, cz_last_error());
        if (status)
            break;
    }
    json_decref(root);
    return status;
}

cz_status convert_rules_read(convert_rules *rules)
{
    for (int64_t i = 0; i < rules->name_count; i++)
        CZ_TRY(read_name_rule(&rules->names[i]));
    return rules->path ? read_file(rules) : CZ_OK;
}

/* ---- tried on a name ---- */

/* False: no memory. */
static bool apply(name_rule *rule, const char *name, cz__text *out)
{
    pattern_match match;
    const size_t prefix = rule->is_prefix ? strlen(rule->from.between[0]) : 0;
    cz__text_cut(out, 0);
    if (rule->is_prefix ? strncmp(name, rule->from.between[0], prefix) == 0
                        : pattern_fits(&rule->from, name, &match)) {
        rule->used = true;
        return rule->is_prefix ? cz__text_print(out, "%s", name + prefix)
                               : pattern_make(&rule->to, &match, rule->to.stars, 0, out);
    }
    return cz__text_print(out, "%s", name);
}

static cz_status check_name(const char *old, const char *name)
{
    if (!*name)
        return cz_fail(CZ_ERR_ARGUMENT, "nothing would be left of the name '%s'",
                       cz__show(old).text);
    json_t *text = json_string(name);
    if (!text)
        return cz_fail(CZ_ERR_ARGUMENT, "'%s' would be called '%s', which is no UTF-8",
                       cz__show(old).text, cz__show(name).text);
    json_decref(text);
    return CZ_OK;
}

cz_status convert_rules_rename(convert_rules *rules, const char *name, cz__text *out)
{
    cz__text before = {0};
    cz__text_cut(out, 0);
    bool fine = cz__text_print(out, "%s", name);
    for (int64_t i = 0; i < rules->name_count && fine; i++) {
        const cz__text swap = before;
        before = *out;
        *out = swap;
        fine = apply(&rules->names[i], cz__text_get(&before), out);
    }
    cz__text_clear(&before);
    return fine ? check_name(name, cz__text_get(out))
                : cz_fail(CZ_ERR_MEMORY, "no memory for a name");
}

shape_rule *convert_rules_find(convert_rules *rules, const char *name, pattern_match *match)
{
    for (int64_t i = 0; i < rules->shape_count; i++)
        if (pattern_fits(&rules->shapes[i].from, name, match)) {
            rules->shapes[i].used = true;
            return &rules->shapes[i];
        }
    return NULL;
}

cz_status convert_rules_check_used(const convert_rules *rules, const char *example)
{
    const cz__shown other = cz__show(example ? example : "");
    for (int64_t i = 0; i < rules->name_count; i++)
        if (!rules->names[i].used)
            return cz_fail(CZ_ERR_ARGUMENT, "%s '%s': no tensor has such a name%s%s%s",
                           rules->names[i].is_prefix ? "--strip-prefix" : "--rename",
                           rules->names[i].text, example ? "; there is '" : "", other.text,
                           example ? "'" : "");
    for (int64_t i = 0; i < rules->shape_count; i++)
        if (!rules->shapes[i].used)
            return cz_fail(CZ_ERR_ARGUMENT,
                           "%s: '%s': no tensor that is left has such a name%s%s%s", rules->path,
                           cz__show(rules->shapes[i].text).text, example ? "; there is '" : "",
                           other.text, example ? "'" : "");
    return CZ_OK;
}
