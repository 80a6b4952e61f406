/* SPDX-License-Identifier: MIT */
/* fuzz_NAME                seeds, what they begin with, and mutations of them, the same ones each
 * time fuzz_NAME --corpus DIR   the inputs that are stored there, each of which broke something
 * once or was made to; then so fuzz_NAME --seeds DIR    write the seeds into an existing folder,
 * for libFuzzer fuzz_NAME FILE...        these inputs, such as one that libFuzzer found */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

enum { MUTATIONS = 20000 };

static uint64_t draws = 0x9e3779b97f4a7c15u;

/* xorshift: a number below `limit` */
static size_t draw(size_t limit)
{
    draws ^= draws << 13;
    draws ^= draws >> 7;
    draws ^= draws << 17;
    return (size_t)(draws >> 16) % limit;
}

/* The target gets a block of its own, so that a sanitizer knows where it ends. */
static void run(const uint8_t *bytes, size_t count)
{
    uint8_t *copy = malloc(count ? count : 1);
    CZ_FUZZ_CHECK(copy);
    memcpy(copy, bytes, count);
    CZ_FUZZ_CHECK(LLVMFuzzerTestOneInput(copy, count) == 0);
    free(copy);
}

/* Replace `gone` bytes at `at` by others. */
static size_t splice(uint8_t *bytes, size_t count, size_t at, size_t gone, const uint8_t *others,
                     size_t more)
{
    if (count - gone + more > CZ_FUZZ_ROOM)
        return count;
    uint8_t moved[CZ_FUZZ_ROOM];
    const size_t behind = count - at - gone;
    memcpy(moved, bytes + at + gone, behind);
    memmove(bytes + at, others, more);
    memcpy(bytes + at + more, moved, behind);
    return count - gone + more;
}

/* One of: a bit, a byte, a piece gone, a piece twice, a piece of another seed, a word that parsers
 * fear. */
static size_t mutate(uint8_t *bytes, size_t count, const uint8_t *other, size_t other_count)
{
    static const char *const words[] = {"-1",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "-9223372036854775808",
                                        "1e999",
                                        "0.5",
                                        "{}",
                                        "[]",
                                        "null",
                                        "\"\"",
                                        "\"$x\":1,",
                                        "$",
                                        "\\u0000",
                                        "\\ud800",
                                        "[[[[[[[[",
                                        "{\"a\":{\"a\":",
                                        "0,0",
                                        "4294967296",
                                        "\xff",
                                        "\"__metadata__\""};
    const size_t at = draw(count + 1), rest = count - at;
    const size_t piece = rest ? draw(rest < 16 ? rest : 16) + 1 : 0;
    const char *word = words[draw(sizeof words / sizeof *words)];
    const uint8_t byte = (uint8_t)draw(256);
    const size_t from = draw(other_count), taken = draw(other_count - from) + 1;
    uint8_t twice[16];
    switch (draw(6)) {
    case 0:
        if (rest)
            bytes[at] ^= (uint8_t)(1 << draw(8));
        return count;
    case 1:
        return splice(bytes, count, at, rest && draw(2) ? 1 : 0, &byte, 1);
    case 2:
        return splice(bytes, count, at, piece, bytes, 0);
    case 3:
        memcpy(twice, bytes + at, piece);
        return splice(bytes, count, at, 0, twice, piece);
    case 4:
        return splice(bytes, count, at, piece, other + from, taken);
    default:
        return splice(bytes, count, at, draw(2) ? piece : 0, (const uint8_t *)word, strlen(word));
    }
}

static int replay(void)
{
    uint8_t bytes[CZ_FUZZ_ROOM], other[CZ_FUZZ_ROOM];
    int seeds = 0;
    for (size_t count; (count = cz_fuzz_seed(seeds, bytes, sizeof bytes)) > 0; seeds++)
        for (size_t cut = 0; cut <= count; cut++)
            run(bytes, cut);
    CZ_FUZZ_CHECK(seeds > 0);
    for (int i = 0; i < MUTATIONS; i++) {
        size_t count = cz_fuzz_seed(i % seeds, bytes, sizeof bytes);
        const size_t other_count = cz_fuzz_seed((int)draw((size_t)seeds), other, sizeof other);
        for (size_t times = draw(4) + 1; times > 0; times--)
            count = mutate(bytes, count, other, other_count);
        run(bytes, count);
    }
    printf("%d seeds, %d mutations\n", seeds, MUTATIONS);
    return 0;
}

static int write_seeds(const char *folder)
{
    uint8_t bytes[CZ_FUZZ_ROOM];
    char path[4096];
    size_t count;
    for (int i = 0; (count = cz_fuzz_seed(i, bytes, sizeof bytes)) > 0; i++) {
        snprintf(path, sizeof path, "%s/seed%02d", folder, i);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(bytes, 1, count, file) != count || fclose(file) != 0)
            return fprintf(stderr, "%s: cannot be written\n", path), 1;
    }
    return 0;
}

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    size_t count = 0;
    if (!file)
        return fprintf(stderr, "%s: cannot be read\n", path), 1;
    for (size_t got = 1; got > 0; count += got) {
        bytes = realloc(bytes, count + 65536);
        CZ_FUZZ_CHECK(bytes);
        got = fread(bytes + count, 1, 65536, file);
    }
    fclose(file);
    run(bytes, count);
    free(bytes);
    return 0;
}

static int run_corpus(const char *folder)
{
    struct dirent **names;
    char path[4096];
    const int count = scandir(folder, &names, NULL, alphasort);
    int failed = count < 0, inputs = 0;
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && ++inputs > 0)
            failed += run_file(path);
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    if (failed > 0 || inputs == 0)
        return fprintf(stderr, "%s: no inputs, or not all can be read\n", folder), 1;
    printf("%d stored inputs, ", inputs);
    return replay();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--corpus") == 0)
        return run_corpus(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0)
        return write_seeds(argv[2]);
    for (int i = 1; i < argc; i++)
        if (run_file(argv[i]) != 0)
            return 1;
    return argc > 1 ? 0 : replay();
}
