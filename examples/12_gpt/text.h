/* SPDX-License-Identifier: MIT */
/* The text: characters as tokens, a part for training and a part held out. */
#ifndef TEXT_H
#define TEXT_H

#include <stdint.h>

#include "czero/status.h"

typedef struct text {
    uint8_t *tokens; /* owned; one per character */
    int64_t count;
    int64_t train_count; /* the first nine tenths; the rest is held out */
    int vocab;
    char characters[256]; /* of token t */
} text;

/* Read a file, or with `path` NULL the King James text from the `bible` command, of which `limit`
 * bytes (0: all); at least `window` + 1 characters must be in each part. */
cz_status text_read(text *out, const char *path, int64_t limit, int window);
void text_free(text *t);

/* `length` tokens from `begin` on, and the ones that follow each. */
void text_window(const text *t, int64_t begin, int length, int *tokens, int *targets);

#endif
