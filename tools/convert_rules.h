/* SPDX-License-Identifier: MIT */
/* What becomes of names and shapes in a conversion: rules of the command line and of a file. */
#ifndef CZ_TOOL_CONVERT_RULES_H
#define CZ_TOOL_CONVERT_RULES_H

#include "pattern.h"

#include "czero/tensor.h"

/* Names of `from` become those of `to`. */
typedef struct name_rule {
    const char *text; /* as it was given, for sentences; borrowed */
    bool is_prefix;   /* it is to be left out */
    pattern from, to; /* owned */
    bool used;
} name_rule;

/* A tensor that one becomes, or a part of it. */
typedef struct piece_rule {
    pattern name; /* owned; empty: it keeps the name */
    int dimensions;
    int64_t shape[CZ_MAX_DIMENSIONS]; /* one may be -1: as many as there are */
} piece_rule;

typedef struct shape_rule {
    pattern from; /* owned, as all that follows */
    char *text;
    piece_rule *pieces;
    int64_t piece_count;
    bool used;
} shape_rule;

/* Zeroed is none. */
typedef struct convert_rules {
    name_rule *names; /* owned, in the order of the command line */
    int64_t name_count, name_capacity;
    const char *path; /* of the file with those of shapes, borrowed; NULL: there is none */
    shape_rule *shapes;
    int64_t shape_count, shape_capacity;
} convert_rules;

/* Note an option; it is read later. CZ_ERR_MEMORY. */
cz_status convert_rules_add(convert_rules *rules, const char *text, bool is_prefix);
static inline bool convert_rules_are(const convert_rules *rules)
{
    return rules->name_count > 0 || rules->path;
}

/* Read all of them. CZ_ERR_ARGUMENT, CZ_ERR_FORMAT, CZ_ERR_IO, CZ_ERR_MEMORY. */
cz_status convert_rules_read(convert_rules *rules);
void convert_rules_clear(convert_rules *rules);

/* The new name in place of an old one. CZ_ERR_ARGUMENT: it would be empty or no UTF-8;
 * CZ_ERR_MEMORY. */
cz_status convert_rules_rename(convert_rules *rules, const char *name, cz__text *out);
/* The first rule of the file for that name, and what its stars are; NULL: none. */
shape_rule *convert_rules_find(convert_rules *rules, const char *name, pattern_match *match);

/* A rule that no tensor fits is a mistake: CZ_ERR_ARGUMENT. `example`: some name, or NULL. */
cz_status convert_rules_check_used(const convert_rules *rules, const char *example);

#endif
