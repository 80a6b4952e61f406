/* SPDX-License-Identifier: MIT */
/* Reading the text and turning characters into tokens. */
#include "text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All of a stream, at most `limit` bytes (0: no limit). */
static char *slurp(FILE *stream, int64_t limit, int64_t *count)
{
    size_t room = 1 << 20, length = 0, got;
    char *bytes = malloc(room);
    while (bytes && (got = fread(bytes + length, 1, room - length, stream)) > 0) {
        length += got;
        if (limit > 0 && (int64_t)length >= limit)
            break;
        if (length == room) {
            char *more = realloc(bytes, room *= 2);
            if (!more)
                free(bytes);
            bytes = more;
        }
    }
    *count = limit > 0 && (int64_t)length > limit ? limit : (int64_t)length;
    return bytes;
}

/* "Ge1:1 In the beginning …" without its first word, line by line, in place. */
static int64_t strip_references(char *bytes, int64_t count)
{
    int64_t kept = 0;
    bool skipping = true;
    for (int64_t i = 0; i < count; i++) {
        if (!skipping)
            bytes[kept++] = bytes[i];
        else if (bytes[i] == ' ')
            skipping = false;
        if (bytes[i] == '\n')
            skipping = true;
    }
    return kept;
}

static char *read_bible(int64_t *count)
{
    FILE *pipe = popen("bible -f 'gen1:1-rev22:21' 2>/dev/null", "r");
    if (!pipe)
        return NULL;
    char *bytes = slurp(pipe, 0, count);
    if (pclose(pipe) != 0)
        *count = 0;
    *count = bytes ? strip_references(bytes, *count) : 0;
    return bytes;
}

static cz_status read_bytes(const char *path, int64_t limit, char **bytes, int64_t *count)
{
    *count = 0;
    if (!path) {
        *bytes = read_bible(count);
        if (*bytes && limit > 0 && limit < *count)
            *count = limit;
        return *count > 0
                   ? CZ_OK
                   : cz_fail(CZ_ERR_IO, "no King James text: install the packages bible-kjv and "
                                        "bible-kjv-text, or give --text FILE");
    }
    FILE *file = fopen(path, "rb");
    if (!file)
        return cz_fail(CZ_ERR_IO, "%s: %s", path, strerror(errno));
    *bytes = slurp(file, limit, count);
    const bool bad = ferror(file) != 0;
    fclose(file);
    return *bytes && !bad ? CZ_OK : cz_fail(CZ_ERR_IO, "%s: cannot be read as a file", path);
}

static void tokenize(text *t)
{
    int token[256];
    bool seen[256] = {false};
    for (int64_t i = 0; i < t->count; i++)
        seen[t->tokens[i]] = true;
    t->vocab = 0;
    for (int c = 0; c < 256; c++)
        if (seen[c]) {
            token[c] = t->vocab;
            t->characters[t->vocab++] = (char)c;
        }
    for (int64_t i = 0; i < t->count; i++)
        t->tokens[i] = (uint8_t)token[t->tokens[i]];
}

cz_status text_read(text *out, const char *path, int64_t limit, int window)
{
    char *bytes = NULL;
    *out = (text){0};
    const cz_status status = read_bytes(path, limit, &bytes, &out->count);
    out->tokens = (uint8_t *)bytes;
    if (status != CZ_OK) {
        text_free(out);
        return status;
    }
    out->train_count = out->count - out->count / 10;
    if (out->count - out->train_count <= window) {
        const int64_t count = out->count;
        text_free(out);
        return cz_fail(
            CZ_ERR_ARGUMENT,
            "the text has %lld characters; one tenth, held out, must exceed a sequence of %d",
            (long long)count, window);
    }
    tokenize(out);
    return CZ_OK;
}

void text_free(text *t)
{
    free(t->tokens);
    t->tokens = NULL;
}

void text_window(const text *t, int64_t begin, int length, int *tokens, int *targets)
{
    for (int i = 0; i < length; i++) {
        tokens[i] = t->tokens[begin + i];
        targets[i] = t->tokens[begin + i + 1];
    }
}
