/* SPDX-License-Identifier: MIT */
/* JSON looked at before it is read: a pass over its bytes, which knows texts, brackets and nothing more. */
#include "io/json_scan.h"

#include <string.h>

/* What jansson allocates for each: an object with its first table, a list with its first block, a text or key with its
 * place in a table, a number or word with its place in a list. */
enum { OBJECT_COST = 250, LIST_COST = 140, TEXT_COST = 72, OTHER_COST = 48 };

typedef enum kind { OTHER, BLANK, QUOTE, COMMA, OPENS, CLOSES } kind;

/* What a character is outside of texts; COMMA is a colon, too. */
static const uint8_t kinds[256] = {
    [' '] = BLANK, ['\t'] = BLANK, ['\n'] = BLANK, ['\r'] = BLANK, ['"'] = QUOTE, [','] = COMMA,
    [':'] = COMMA, ['['] = OPENS,  ['{'] = OPENS,  [']'] = CLOSES, ['}'] = CLOSES};

static kind kind_of(char c)
{
    return (kind)kinds[(unsigned char)c];
}

/* The place behind the text that begins at `at`; `count`: it does not end. */
static size_t skip_text(const char *bytes, size_t count, size_t at)
{
    for (at++; at < count; at++) {
        if (bytes[at] == '"')
            return at + 1;
        at += bytes[at] == '\\' ? 1 : 0;
    }
    return count;
}

static size_t skip_other(const char *bytes, size_t count, size_t at)
{
    while (at < count && kind_of(bytes[at]) == OTHER)
        at++;
    return at;
}

uint64_t cz__json_cost(const char *bytes, size_t count)
{
    uint64_t cost = 0;
    for (size_t at = 0; at < count;) {
        const size_t begin = at;
        switch (kind_of(bytes[at])) {
        case QUOTE:
            at = skip_text(bytes, count, at);
            cost += TEXT_COST + (at - begin);
            break;
        case OTHER:
            at = skip_other(bytes, count, at);
            cost += OTHER_COST;
            break;
        case OPENS:
            cost += bytes[at++] == '{' ? OBJECT_COST : LIST_COST;
            break;
        default:
            at++;
        }
    }
    return cost;
}

static void skip_blanks(cz__json_scan *scan)
{
    while (scan->at < scan->count && kind_of(scan->bytes[scan->at]) == BLANK)
        scan->at++;
}

/* A character that has to be there, after blanks. */
static bool take(cz__json_scan *scan, char wanted)
{
    skip_blanks(scan);
    if (scan->at >= scan->count || scan->bytes[scan->at] != wanted)
        return false;
    scan->at++;
    return true;
}

/* Past a value that begins at `at`; false: it does not end. */
static bool skip_value(cz__json_scan *scan, int *depth)
{
    int open = 0;
    *depth = 0;
    for (size_t at = scan->at; at < scan->count; scan->at = at) {
        const kind k = kind_of(scan->bytes[at]);
        if (k == QUOTE)
            at = skip_text(scan->bytes, scan->count, at);
        else if (k == OTHER)
            at = skip_other(scan->bytes, scan->count, at);
        else
            at++;
        open += k == OPENS ? 1 : 0;
        open -= k == CLOSES ? 1 : 0;
        *depth = open > *depth ? open : *depth;
        if (open == 0) {
            scan->at = at;
            return true;
        }
    }
    return false;
}

static cz__json_step finish(cz__json_scan *scan, const char **why)
{
    skip_blanks(scan);
    *why = "wanted nothing more";
    return scan->at == scan->count ? CZ__JSON_END : CZ__JSON_WRONG;
}

cz__json_step cz__json_next(cz__json_scan *scan, cz__json_member *member, const char **why)
{
    const bool first = !scan->begun;
    *why = "wanted {";
    if (first && !take(scan, '{'))
        return CZ__JSON_WRONG;
    scan->begun = true;
    if (take(scan, '}'))
        return finish(scan, why);
    *why = "wanted , or }";
    if (!first && !take(scan, ','))
        return CZ__JSON_WRONG;
    skip_blanks(scan);
    *why = "wanted a key in quotes";
    if (scan->at >= scan->count || scan->bytes[scan->at] != '"')
        return CZ__JSON_WRONG;
    member->key = scan->at;
    scan->at = skip_text(scan->bytes, scan->count, scan->at);
    member->key_bytes = scan->at - member->key;
    *why = "wanted a : behind the key";
    if (!take(scan, ':'))
        return CZ__JSON_WRONG;
    skip_blanks(scan);
    *why = "wanted a value that ends";
    member->value = scan->at;
    if (scan->at >= scan->count || strchr(",:]}", scan->bytes[scan->at]) ||
        !skip_value(scan, &member->depth))
        return CZ__JSON_WRONG;
    member->value_bytes = scan->at - member->value;
    return CZ__JSON_MEMBER;
}
