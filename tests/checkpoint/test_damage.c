/* SPDX-License-Identifier: MIT */
/* Files that are not what was saved. Whatever happened to them, all ranks get an error that names
 * the file (and the tensor that was hit), nothing here has changed, and the group and the other
 * generations are as usable as before. */
#include "checkpoint/damaged_files.h"

enum { OLD = 5, NEW = 6, SEED = 50 };

static char folder[FOLDER_BYTES], old_generation[SMALL_PATH], generation[SMALL_PATH];
static small_values saved[NEW + 1];

static const char *const files[] = {"index.json",
                                    "common.safetensors",
                                    "rank-00000-of-00002.json",
                                    "rank-00001-of-00002.json",
                                    "rank-00000-of-00002.safetensors",
                                    "rank-00001-of-00002.safetensors"};
enum { FILES = sizeof files / sizeof *files, INDEX = 0, COMMON = 1, MARK = 2, PART = 4 };

/* ---- two generations on two ranks ---- */

static cz_status fill(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 5);
    for (int step = OLD; status == CZ_OK && step <= NEW; step++) {
        status = small_step(&s);
        if (status == CZ_OK && cz_group_rank(group) == 0)
            saved[step] = s.values;
        THEN(small_save(&s, step, false));
    }
    small_close(&s);
    return status;
}

static int set_up(void **state)
{
    make_quick_folder(folder);
    cz_log_set_sink(small_quiet, NULL);
    snprintf(old_generation, sizeof old_generation, "%s/00000001-step-5", folder);
    snprintf(generation, sizeof generation, "%s/00000002-step-6", folder);
    assert_ranks_ok(2, fill, NULL);
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(folder);
    return 0;
}

/* ---- what has to hold ---- */

/* Before it: rank 0 has done something to the file; after it, rank 0 may undo it. */
static cz_status refused(small *s, unsigned allowed, const char *name, const char *tensor)
{
    CZ_TRY(cz_barrier(s->group, NULL));
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, NULL, NULL), allowed, name, tensor));
    return small_unchanged(s);
}

static cz_status begin(small *s, cz_group *group)
{
    CZ_TRY(small_open(s, group, folder, SEED, 5));
    CZ_TRY(small_step(s));
    return small_remember(s);
}

/* ---- every byte, every length ---- */

typedef struct scan {
    size_t stride;
    bool all_bits;
} scan;

static cz_status scan_lengths(small *s, const kept_file *p, const char *name, size_t stride)
{
    for (size_t at = 0; at < p->count; at += stride) {
        if (cz_group_rank(s->group) == 0)
            CZ_TRY(truncate_file(p->path, at));
        CZ_TRY(refused(s, ONE(CZ_ERR_FORMAT), name, NULL));
        if (cz_group_rank(s->group) == 0)
            CZ_TRY(restore_file(p));
    }
    return CZ_OK;
}

static cz_status scan_bytes(small *s, const kept_file *p, const char *name, const scan *how)
{
    for (size_t at = 0; at < p->count; at += how->stride)
        for (int bit = how->all_bits ? 0 : (int)(at % 8); bit < 8; bit += how->all_bits ? 1 : 8) {
            const bool data = data_begin(p) > 0 && at >= data_begin(p);
            if (cz_group_rank(s->group) == 0)
                CZ_TRY(set_byte(p->path, at, (char)(p->bytes[at] ^ 1 << bit)));
            cz_status status = refused(s, ONE(CZ_ERR_FORMAT), name, data ? "tensor '" : NULL);
            if (status != CZ_OK)
                return cz_fail(status, "byte %zu of %s, bit %d: %.180s", at, name, bit,
                               cz_last_error());
            if (cz_group_rank(s->group) == 0)
                CZ_TRY(set_byte(p->path, at, p->bytes[at]));
        }
    return CZ_OK;
}

static cz_status scan_files(small *s, const scan *how)
{
    for (int f = 0; f < FILES; f++) {
        kept_file p;
        CZ_TRY(cz_barrier(s->group, NULL));
        cz_status status = keep_file(&p, generation, files[f]);
        THEN(cz_barrier(s->group, NULL));
        THEN(scan_bytes(s, &p, files[f], how));
        THEN(scan_lengths(s, &p, files[f], how->stride));
        free(p.bytes);
        CZ_TRY(status);
    }
    CZ_TRY(cz_barrier(s->group, NULL));
    return small_load(s, NULL, &saved[NEW], NEW);
}

static cz_status scan_body(cz_group *group, void *context)
{
    small s;
    cz_status status = begin(&s, group);
    THEN(scan_files(&s, context));
    small_close(&s);
    return status;
}

EACH_TEST(set_up, tear_down)

TEST(every_byte_and_every_length)
{
    assert_ranks_ok(1, scan_body, &((scan){SANITIZED ? 7 : 1, false}));
    assert_ranks_ok(2, scan_body, &((scan){SANITIZED ? 53 : 23, false}));
    assert_ranks_ok(3, scan_body, &((scan){SANITIZED ? 71 : 31, false}));
}

TEST(every_bit_of_a_few_bytes)
{
    assert_ranks_ok(1, scan_body, &((scan){SANITIZED ? 43 : 11, true}));
}

/* ---- other files in its place ---- */

typedef enum damage {
    REMOVED,
    EMPTY,
    A_FOLDER,
    A_PIPE,
    ENDLESS,  /* a link to /dev/zero */
    DANGLING, /* a link to nothing */
    LONGER,
    MUCH_LONGER,
    OTHER_RANK,
    OTHER_GENERATION,
    DAMAGES
} damage;

static cz_status copy(const char *from, const char *to)
{
    char *bytes;
    size_t count;
    cz_status status = get_bytes(from, &bytes, &count);
    THEN(put_bytes(to, bytes, count));
    free(bytes);
    return status;
}

static cz_status damage_file(const kept_file *p, int file, damage kind)
{
    char other[2 * SMALL_PATH], many[5000] = {0};
    bool done = true;
    if (kind == LONGER || kind == MUCH_LONGER) {
        FILE *end = fopen(p->path, "ab");
        done = end && fwrite(many, kind == LONGER ? 1 : sizeof many, 1, end) == 1;
        if (end)
            fclose(end);
        return done ? CZ_OK : file_failed(p->path);
    }
    if (unlink(p->path) != 0)
        return file_failed(p->path);
    if (kind == EMPTY)
        return put_bytes(p->path, "", 0);
    if (kind == A_FOLDER)
        done = mkdir(p->path, 0777) == 0;
    if (kind == A_PIPE)
        done = mkfifo(p->path, 0666) == 0;
    if (kind == ENDLESS || kind == DANGLING)
        done = symlink(kind == ENDLESS ? "/dev/zero" : "nowhere", p->path) == 0;
    if (kind == OTHER_RANK || kind == OTHER_GENERATION) {
        snprintf(other, sizeof other, "%s/%s", kind == OTHER_RANK ? generation : old_generation,
                 kind == OTHER_RANK ? files[file ^ 1] : files[file]);
        return copy(other, p->path);
    }
    return done ? CZ_OK : file_failed(p->path);
}

/* Without its index or a mark a generation was never complete: that is no damage. */
static bool makes_incomplete(int file, damage kind)
{
    return kind == REMOVED && file != COMMON && file < PART;
}

static cz_status fall_back(small *s, const char *note)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    options.fall_back = 1;
    CZ_TRY(small_load(s, &options, &saved[OLD], OLD));
    if (!strstr(cz_checkpoint_notes(s->checkpoint), note) ||
        !strstr(cz_checkpoint_notes(s->checkpoint), "generation 2 (step 6) was passed over"))
        return cz_fail(CZ_ERR_STATE, "the notes do not say '%s': %.150s", note,
                       cz_checkpoint_notes(s->checkpoint));
    return CZ_OK;
}

static cz_status wanted_step(small *s, const char *note)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    options.step = NEW;
    options.fall_back = 1;
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, &options, NULL), ONE(CZ_ERR_STATE), note,
                        "of step 6"));
    return small_unchanged(s);
}

static cz_status load_damage(small *s, const kept_file *p, int file, damage kind)
{
    const unsigned allowed = ONE(CZ_ERR_FORMAT) | ONE(CZ_ERR_IO);
    const char *note = !makes_incomplete(file, kind) ? files[file]
                       : file == INDEX               ? "there is no index"
                                                     : "the part of rank";
    if (cz_group_rank(s->group) == 0)
        CZ_TRY(damage_file(p, file, kind));
    CZ_TRY(cz_barrier(s->group, NULL));
    CZ_TRY(wanted_step(s, note));
    if (!makes_incomplete(file, kind))
        CZ_TRY(refused(s, allowed, files[file], NULL));
    CZ_TRY(fall_back(s, note));
    CZ_TRY(small_remember(s));
    CZ_TRY(cz_barrier(s->group, NULL));
    if (cz_group_rank(s->group) == 0)
        CZ_TRY(restore_file(p));
    CZ_TRY(cz_barrier(s->group, NULL));
    CZ_TRY(small_load(s, NULL, &saved[NEW], NEW));
    CZ_TRY(small_step(s));
    return small_remember(s);
}

static cz_status load_all_damages(small *s)
{
    for (int f = 0; f < FILES; f++)
        for (damage kind = REMOVED; kind < DAMAGES; kind++) {
            kept_file p;
            if (kind == OTHER_RANK && f < MARK)
                continue;
            cz_status status = keep_file(&p, generation, files[f]);
            THEN(cz_barrier(s->group, NULL));
            THEN(load_damage(s, &p, f, kind));
            free(p.bytes);
            if (status != CZ_OK)
                return cz_fail(status, "%s, kind %d: %.180s", files[f], (int)kind, cz_last_error());
        }
    return CZ_OK;
}

static cz_status load_damages(cz_group *group, void *context)
{
    small s;
    cz_status status = begin(&s, group);
    THEN(load_all_damages(&s));
    small_close(&s);
    return status;
}

TEST(other_things_in_its_place)
{
    for (int world = 1; world <= 3; world += 1 + SANITIZED)
        assert_ranks_ok(world, load_damages, NULL);
}

/* ---- whole parts in the place of others: mark and elements fit each other ---- */

static cz_status exchange(small *s, const char *from_folder, int from)
{
    kept_file mark, part;
    char path[2 * SMALL_PATH];
    const bool first = cz_group_rank(s->group) == 0;
    CZ_TRY(keep_file(&mark, generation, files[MARK]));
    CZ_TRY(keep_file(&part, generation, files[PART]));
    CZ_TRY(cz_barrier(s->group, NULL));
    for (int k = 0; first && k < 2; k++) {
        snprintf(path, sizeof path, "%s/%s", from_folder, files[(k ? PART : MARK) + from]);
        CZ_TRY(copy(path, k ? part.path : mark.path));
    }
    CZ_TRY(refused(s, ONE(CZ_ERR_FORMAT), files[MARK], NULL));
    CZ_TRY(cz_barrier(s->group, NULL));
    if (first) {
        CZ_TRY(restore_file(&mark));
        CZ_TRY(restore_file(&part));
    }
    free(mark.bytes);
    free(part.bytes);
    return cz_barrier(s->group, NULL);
}

static cz_status exchange_body(cz_group *group, void *context)
{
    small s;
    cz_status status = begin(&s, group);
    THEN(exchange(&s, generation, 1));
    THEN(exchange(&s, old_generation, 0));
    THEN(small_load(&s, NULL, &saved[NEW], NEW));
    small_close(&s);
    return status;
}

TEST(whole_parts_of_others)
{
    for (int world = 1; world <= 3; world += 1 + SANITIZED)
        assert_ranks_ok(world, exchange_body, NULL);
}
