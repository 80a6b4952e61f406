/* SPDX-License-Identifier: MIT */
/* What a fuzz target is: one file fuzz_NAME.c that defines the two functions below. It is built
 * twice: with libFuzzer (`make fuzz`), and in every build as the test fuzz/fuzz_NAME, which replays
 * the seeds and mutations of them (replay.c). */
#ifndef CZ_TESTS_FUZZ_H
#define CZ_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Take these bytes for whatever they are; 0. A broken promise is CZ_FUZZ_CHECK()'s matter. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Write the seed of that number, at most `room` bytes: how many. 0: there are no more. */
size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room);

#define CZ_FUZZ_ROOM 4096 /* for a seed */

#define CZ_FUZZ_CHECK(promise)                                                                     \
    do {                                                                                           \
        if (!(promise)) {                                                                          \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #promise);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
