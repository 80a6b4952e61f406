/* SPDX-License-Identifier: MIT */
/* Flight recordings: an input is several, a line each, as czero doctor would find them in files. Of
 * each group there is something to say, about ranks that it has. */
#include "fuzz.h"

#include "doctor.h"
#include "io/json.h"

#include <string.h>

enum { MOST_RECORDINGS = 16 };

/* What czero doctor makes of bytes that are not ASCII. */
static json_t *parse(const uint8_t *bytes, size_t count)
{
    json_t *root = NULL;
    char *const text = malloc(count + 1);
    CZ_FUZZ_CHECK(text);
    for (size_t i = 0; i < count; i++)
        text[i] = bytes[i] < 0x80 ? (char)bytes[i] : '?';
    text[count] = '\0';
    (void)cz__json_parse(&root, "FILE", text, count);
    free(text);
    return root;
}

static void take(recordings *all, const uint8_t *bytes, size_t count)
{
    json_t *root = parse(bytes, count);
    if (!root || !recording_is_whole(root)) {
        json_decref(root);
        return;
    }
    CZ_FUZZ_CHECK(recording_read(&all->list[all->count++], root));
}

static void check_ranks(const int *ranks, int count, int most)
{
    CZ_FUZZ_CHECK(count >= 0 && count <= most);
    for (int i = 0; i < count; i++)
        CZ_FUZZ_CHECK(ranks[i] >= 0);
}

static void check_finding(const finding *f, int count)
{
    check_ranks(f->waiting, f->waiting_count, count);
    check_ranks(f->late, f->late_count, count);
    check_ranks(f->unrecorded, f->unrecorded_count, f->size);
    CZ_FUZZ_CHECK(f->state == FINDING_FINE || f->sentence_count > 0);
    for (int i = 0; i < f->sentence_count; i++)
        CZ_FUZZ_CHECK(*f->sentences[i]);
    CZ_FUZZ_CHECK(*finding_state_name(f->state));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    recording list[MOST_RECORDINGS];
    recordings all = {.list = list};
    finding f;
    for (size_t at = 0; at < count && all.count < MOST_RECORDINGS;) {
        const uint8_t *end = memchr(bytes + at, '\n', count - at);
        const size_t length = end ? (size_t)(end - bytes) - at : count - at;
        take(&all, bytes + at, length);
        at += length + 1;
    }
    recordings_sort(&all);
    for (int at = 0; at < all.count; at = f.next) {
        CZ_FUZZ_CHECK(finding_make(&f, &all, at));
        CZ_FUZZ_CHECK(f.next > at && f.next <= all.count);
        check_finding(&f, f.next - at);
        finding_clear(&f);
    }
    for (int i = 0; i < all.count; i++)
        recording_clear(&all.list[i]);
    return 0;
}

#define RECORDING(RANK, REASON, OPERATIONS)                                                        \
    "{\"name\":\"g\",\"backend\":\"b\",\"reason\":\"" REASON "\",\"rank\":" RANK                   \
    ",\"size\":3,\"global_rank\":" RANK ",\"written\":9.5,\"process\":7,\"members\":[0,1,2],"      \
    "\"operations\":[" OPERATIONS "]}\n"
#define OPERATION(SEQUENCE, NAME, STATUS, AGO)                                                     \
    "{\"lane\":0,\"sequence\":" SEQUENCE ",\"operation\":\"" NAME                                  \
    "\",\"label\":\"l\",\"dtype\":\"f32\",\"count\":3,\"root\":-1,\"seconds_ago\":" AGO            \
    ",\"status\":\"" STATUS "\"}"

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    static const char *const seeds[] = {
        RECORDING("0", "SIGUSR2", OPERATION("5", "step", "in flight", "2.5"))
            RECORDING("1", "SIGUSR2", OPERATION("4", "step", "CZ_OK", "3")),
        RECORDING(
            "0", "a timeout",
            OPERATION("1", "step", "CZ_OK", "9") "," OPERATION("2", "step", "CZ_ERR_TIMEOUT", "8"))
            RECORDING("1", "", OPERATION("2", "broadcast", "in flight", "1"))
                RECORDING("2", "", ""),
        RECORDING("0", "", OPERATION("2", "step", "in flight", "8"))
            RECORDING("1", "", OPERATION("2", "step", "in flight", "1"))
                RECORDING("2", "", OPERATION("2", "step", "CZ_ERR_PEER", "8")),
    };
    if (number < 0 || number >= (int)(sizeof seeds / sizeof *seeds) || strlen(seeds[number]) > room)
        return 0;
    memcpy(bytes, seeds[number], strlen(seeds[number]));
    return strlen(seeds[number]);
}
