/* SPDX-License-Identifier: MIT */
/* Checkpoints and other programs' files, read by one process without a group. */
#include "interop/archive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/generation.h"
#include "interop/bundle.h"
#include "io/folder.h"
#include "shard/shard.h"

struct cz_archive {
    cz__input input;
    cz__text notes;
    cz__text file; /* the path that cz_archive_file() gave last */
    /* Keys of what other programs wrote beside the tensors, owned; they are the index's. */
    const char **keys;
    int64_t key_count;
};

/* ---- opening ---- */

/* A folder called as generations are, though its index may be missing. */
static bool is_generation(const char *path, const cz__look *look)
{
    int64_t number, step;
    const char *slash = strrchr(path, '/');
    return look->generation ||
           sscanf(slash ? slash + 1 : path, "%8" SCNd64 "-step-%" SCNd64, &number, &step) == 2;
}

/* A part of a checkpoint is a safetensors file too. */
static cz_status check_part(const cz__bundle *b)
{
    const char *format = cz__safetensors_metadata(b->files[0].header, "format");
    return format && strcmp(format, "czero checkpoint part") == 0
               ? cz__fail(CZ_ERR_ARGUMENT,
                          "%s: this is one file of a checkpoint; give the folder that it is in",
                          b->path)
               : CZ_OK;
}

static cz_status open_bundle(cz_archive *a, const char *path, const char *rule)
{
    cz__index here = {0};
    cz_status status = CZ_OK;
    if (rule)
        status = cz_state_dict_create(&here.optimizer);
    if (status)
        goto done;
    if (rule)
        status = cz_state_dict_set_text(here.optimizer, "rule", rule);
    if (status)
        goto done;
    status = cz__input_open_bundle(&a->input, path, rule ? &here : NULL);
done:
    cz_state_dict_destroy(&here.optimizer);
    const cz__bundle *bundle = cz__input_bundle(&a->input);
    if (bundle && bundle->count > 0)
        CZ_TRY(check_part(bundle));
    if (bundle && cz__bundle_notes(bundle))
        cz__text_print(&a->notes, "note: %s\n", cz__bundle_notes(bundle));
    return status;
}

#define MAKE_AGAIN                                                                                 \
    "a conversion or an export that was killed left this, or one is under way. If it was killed: " \
    "start it again, which replaces this, or remove it"

/* A path that is not there: was it to be made? */
static cz_status none_there(const char *path)
{
    cz__text left = {0};
    cz__unfinished_list(&left, path);
    const cz_status status =
        left.count > 0
            ? cz__fail(CZ_ERR_ARGUMENT, "%s: there is no such file or folder; " MAKE_AGAIN ":\n%s",
                       path, cz__text_get(&left))
            : cz__fail(CZ_ERR_ARGUMENT, "%s: there is no such file or folder", path);
    cz__text_clear(&left);
    return status;
}

static void note_unfinished(cz_archive *a, const char *path)
{
    cz__text left = {0};
    cz__unfinished_list(&left, path);
    if (left.count > 0)
        cz__text_print(&a->notes, "note: " MAKE_AGAIN ":\n%s", cz__text_get(&left));
    cz__text_clear(&left);
}

static cz_status open_path(cz_archive *a, const char *path, int64_t step, const char *rule)
{
    cz__look look;
    CZ_TRY(cz__look_at(&look, path));
    if (!look.there)
        return none_there(path);
    note_unfinished(a, path);
    if (!look.folder && !look.file)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: is a device, pipe or socket, not a file", path);
    const bool consolidated = look.file || cz__look_consolidated(&look);
    const bool generation = !consolidated && is_generation(path, &look);
    if (!consolidated && !generation)
        return cz__input_open_newest(&a->input, path, step, &a->notes);
    if (step >= 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: a step chooses among the generations in a folder, and this is none",
                        path);
    if (consolidated)
        return open_bundle(a, path, rule);
    if (!look.generation)
        return cz__fail(CZ_ERR_STATE,
                        "%s: this generation was never completed: there is no index.json. If "
                        "nothing is writing it, it can be removed. For the newest complete one "
                        "give the folder that it is in",
                        path);
    return cz__input_open(&a->input, path);
}

static cz_status list_keys(cz_archive *a)
{
    const char *key;
    json_t *text, *const all = a->input.index.metadata;
    a->keys = cz__calloc(json_object_size(all) + 1, sizeof *a->keys);
    if (!a->keys)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a list of what is beside the tensors",
                        a->input.path);
    json_object_foreach(all, key, text)
    {
        a->keys[a->key_count++] = key;
    }
    return CZ_OK;
}

static cz_status open_and_list(cz_archive *a, const char *path, int64_t step, const char *rule)
{
    char *copy = cz__path_copy(path);
    if (!copy)
        return cz__fail(CZ_ERR_MEMORY, "no memory for a path");
    cz__index_to_folder(copy);
    const cz_status status = open_path(a, copy, step, rule);
    cz__free(copy);
    return status ? status : list_keys(a);
}

cz_status cz__archive_open_of_rule(cz_archive **out, const char *path, int64_t step,
                                   const char *rule)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "archive open: out is NULL");
    *out = NULL;
    if (!path || !path[0])
        return cz__fail(CZ_ERR_ARGUMENT, "archive open: the path is %s", path ? "''" : "NULL");
    if (step < CZ_NEWEST)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "archive open: step is %" PRId64 ", wanted 0 or more, or CZ_NEWEST", step);
    cz_archive *a = cz__calloc(1, sizeof *a);
    const cz_status status =
        a ? open_and_list(a, path, step, rule) : cz__fail(CZ_ERR_MEMORY, "no memory for a path");
    if (status)
        cz_archive_destroy(&a);
    *out = a;
    return status;
}

/* Files are opened when they are read, and by then the program may be somewhere else. */
cz_status cz_archive_open(cz_archive **out, const char *path, int64_t step)
{
    CZ__UNCANCELLED;
    const bool keep = path && path[0] && !cz__paths_stay;
    char *whole = keep ? cz__path_absolute(path) : NULL;
    if (keep && !whole) {
        const int error = errno;
        if (out)
            *out = NULL;
        return cz__fail(error == ENOMEM ? CZ_ERR_MEMORY : CZ_ERR_IO,
                        "archive open: %s: the working directory: %s", path,
                        error == ENOMEM ? "no memory for its path" : strerror(error));
    }
    const cz_status status = cz__archive_open_of_rule(out, whole ? whole : path, step, NULL);
    cz__free(whole);
    return status;
}

void cz_archive_destroy(cz_archive **archive)
{
    CZ__UNCANCELLED;
    if (!archive || !*archive)
        return;
    cz__input_close(&(*archive)->input);
    cz__text_clear(&(*archive)->notes);
    cz__text_clear(&(*archive)->file);
    cz__free((*archive)->keys);
    cz__free(*archive);
    *archive = NULL;
}

cz__input *cz__archive_input(cz_archive *archive)
{
    return &archive->input;
}

/* ---- what there is ---- */

static const char *kind_of(const cz__input *input)
{
    const cz__bundle *bundle = cz__input_bundle(input);
    const bool foreign = input->index.says_nothing_of_state;
    if (!bundle)
        return "a checkpoint in parts";
    if (bundle->torch && bundle->torch->file->store)
        return foreign ? "a model in a distributed checkpoint of torch"
                       : "a distributed checkpoint of torch";
    if (bundle->torch)
        return foreign ? "a model in a file of torch" : "a checkpoint in a file of torch";
    if (foreign)
        return bundle->count > 1 ? "a model in several safetensors files"
                                 : "a model in one safetensors file";
    return bundle->count > 1 ? "a consolidated checkpoint in several files"
                             : "a consolidated checkpoint in one file";
}

cz_status cz_archive_get_info(const cz_archive *archive, cz_archive_info *info)
{
    if (!archive || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "archive info: %s is NULL", archive ? "info" : "archive");
    const cz__index *index = &archive->input.index;
    const cz__bundle *bundle = cz__input_bundle(&archive->input);
    const json_t *library = json_object_get(index->json, "library");
    const cz_archive_info ours = {.path = archive->input.path,
                                  .kind = kind_of(&archive->input),
                                  .notes = cz__text_get(&archive->notes),
                                  .optimizer = index->optimizer,
                                  .step = index->says_nothing_of_state ? -1 : index->step,
                                  .generation = bundle ? -1 : index->generation,
                                  .world_size = bundle ? 0 : index->world_size,
                                  .param_count = index->param_count,
                                  .buffer_count = index->buffer_count,
                                  .id = bundle ? NULL : index->id,
                                  .library = bundle ? NULL : json_string_value(library),
                                  .foreign = index->says_nothing_of_state,
                                  .torch = bundle && bundle->torch,
                                  .parts = index->part_count};
    return cz__options_write(info, &ours, sizeof ours, "cz_archive_info");
}

static bool is_place(const cz_archive *archive, int64_t place)
{
    return place >= 0 &&
           place < archive->input.index.param_count + archive->input.index.buffer_count;
}

static cz_status refuse_place(const cz_archive *archive, const char *call, int64_t place)
{
    return cz__fail(CZ_ERR_ARGUMENT, "%s: place %" PRId64 ", %s has %" PRId64 " tensors", call,
                    place, archive->input.path,
                    archive->input.index.param_count + archive->input.index.buffer_count);
}

static void reach_rank(cz_archive_tensor *tensor, int rank)
{
    tensor->first_rank = rank < tensor->first_rank ? rank : tensor->first_rank;
    tensor->last_rank = rank > tensor->last_rank ? rank : tensor->last_rank;
}

/* The ranks whose parts have elements of it: what granules leave may be with any. */
static void find_ranks(const cz__index *index, int64_t place, cz_archive_tensor *tensor)
{
    cz_span last, before;
    const cz__stored *s = &index->stored[place];
    tensor->first_rank = tensor->last_rank = s->owner;
    if (s->owner >= 0 || !index->map)
        return;
    tensor->first_rank = tensor->last_rank = cz__shard_map_home(index->map, place);
    if (!cz__shard_map_locate(index->map, place, s->count - 1, &last))
        return;
    reach_rank(tensor, last.rank);
    if (cz__shard_map_locate(index->map, place, last.begin - 1, &before))
        reach_rank(tensor, before.rank);
}

cz_status cz_archive_get_tensor(const cz_archive *archive, int64_t place, cz_archive_tensor *tensor)
{
    if (!archive || !tensor)
        return cz__fail(CZ_ERR_ARGUMENT, "archive tensor: %s is NULL",
                        archive ? "tensor" : "archive");
    if (!is_place(archive, place))
        return refuse_place(archive, "archive tensor", place);
    const cz__stored *s = &archive->input.index.stored[place];
    cz_archive_tensor ours = {.name = s->name,
                              .type = cz__type_shown(s->dtype),
                              .dtype = cz__type_is_foreign(s->dtype) ? (cz_dtype)0 : s->dtype,
                              .dimensions = s->dimensions,
                              .count = s->count,
                              .element_size = cz__type_unit(s->dtype),
                              .first_rank = -1,
                              .last_rank = -1};
    memcpy(ours.shape, s->shape, sizeof ours.shape);
    if (!archive->input.form)
        find_ranks(&archive->input.index, place, &ours);
    return cz__options_write(tensor, &ours, sizeof ours, "cz_archive_tensor");
}

int64_t cz_archive_find(const cz_archive *archive, const char *name)
{
    return archive && name ? cz__index_find(&archive->input.index, name) : -1;
}

const char *cz_archive_slot(const cz_archive *archive, int64_t place, int64_t number,
                            cz_dtype *dtype)
{
    const char *slot;
    cz_dtype own;
    int64_t at = 0;
    if (!archive || place < 0 || place >= archive->input.index.param_count || number < 0)
        return NULL;
    while (cz__index_slot(&archive->input.index, place, &at, &slot, &own)) {
        if (number-- > 0)
            continue;
        if (dtype)
            *dtype = own;
        return slot;
    }
    return NULL;
}

const char *cz_archive_note(const cz_archive *archive, int64_t number, const char **key)
{
    if (key)
        *key = NULL;
    if (!archive || !key || number < 0 || number >= archive->key_count)
        return NULL;
    *key = archive->keys[number];
    return json_string_value(json_object_get(archive->input.index.metadata, *key));
}

/* The index, the common dictionary's tensors if it has some, and two files for each rank. */
static cz_status name_file_of_generation(cz_archive *a, int64_t number, bool *is)
{
    const char *path = a->input.path;
    const int ranks = a->input.index.world_size;
    const bool common = cz__input_common_file(&a->input) != NULL;
    const int64_t of_parts = number - 1 - common;
    *is = of_parts < 2 * (int64_t)ranks;
    if (number == 0)
        return cz__index_path(&a->file, path);
    if (of_parts < 0)
        return cz__common_path(&a->file, path);
    if (!*is)
        return CZ_OK;
    return cz__part_path(&a->file, path, (int)(of_parts / 2), ranks,
                         of_parts % 2 ? "json" : "safetensors");
}

const char *cz_archive_file(cz_archive *archive, int64_t number)
{
    bool is;
    if (!archive || number < 0)
        return NULL;
    const cz__bundle *bundle = cz__input_bundle(&archive->input);
    if (!bundle)
        return name_file_of_generation(archive, number, &is) == CZ_OK && is
                   ? cz__text_get(&archive->file)
                   : NULL;
    if (bundle->torch && bundle->torch->file->store)
        return bundle->torch->file->store->file(bundle->torch->file, number);
    if (bundle->torch)
        return number == 0 ? bundle->path : NULL;
    return number < bundle->count ? bundle->files[number].path : NULL;
}

/* ---- reading ---- */

static bool has_slot(const cz_archive *archive, int64_t place, const char *slot)
{
    const char *name;
    for (int64_t i = 0; (name = cz_archive_slot(archive, place, i, NULL)); i++)
        if (strcmp(name, slot) == 0)
            return true;
    return false;
}

static cz_status check_range(const cz_archive *archive, int64_t place, const char *slot,
                             int64_t begin, int64_t end)
{
    if (!is_place(archive, place))
        return refuse_place(archive, "archive read", place);
    const cz__stored *s = &archive->input.index.stored[place];
    if (slot && !has_slot(archive, place, slot))
        return cz__fail(CZ_ERR_ARGUMENT, "archive read: '%s' has no slot '%s' in %s",
                        cz__show(s->name).text, cz__show(slot).text, archive->input.path);
    if (begin < 0 || end < begin || end > s->count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "archive read: elements [%" PRId64 ", %" PRId64
                        ") of '%s', which has %" PRId64,
                        begin, end, cz__show(s->name).text, s->count);
    if (!slot && s->no_value)
        return cz__fail(CZ_ERR_ARGUMENT, "archive read: of '%s' %s has state and no value",
                        cz__show(s->name).text, archive->input.path);
    return CZ_OK;
}

cz_status cz_archive_read(cz_archive *archive, int64_t place, const char *slot, int64_t begin,
                          int64_t end, void *elements)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!archive)
        return cz__fail(CZ_ERR_ARGUMENT, "archive read: archive is NULL");
    CZ_TRY(check_range(archive, place, slot, begin, end));
    if (begin == end)
        return CZ_OK;
    if (!elements)
        return cz__fail(CZ_ERR_ARGUMENT, "archive read: elements is NULL");
    return cz__input_read(&archive->input, place, slot, begin, end, elements);
}

cz_status cz_archive_read_dict(cz_archive *archive, int rank, cz_state_dict **out)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (out)
        *out = NULL;
    if (!archive || !out)
        return cz__fail(CZ_ERR_ARGUMENT, "archive read_dict: %s is NULL",
                        archive ? "out" : "archive");
    if (rank == CZ_ALL_RANKS)
        return cz__input_common(&archive->input, out);
    const int ranks = archive->input.form ? 0 : archive->input.index.world_size;
    if (rank < 0 || rank >= ranks)
        return cz__fail(CZ_ERR_ARGUMENT, "archive read_dict: rank %d, %s has parts of %d ranks",
                        rank, archive->input.path, ranks);
    return cz__input_own(&archive->input, rank, out);
}

/* ---- verifying ---- */

typedef struct verifying {
    cz_archive *archive;
    cz_verify_options options;
    cz_verify_result result;
    cz__text first; /* the sentence of the first problem */
    cz__coverage coverage;
} verifying;

static cz_status problem(const char *sentence, void *context)
{
    verifying *v = context;
    if (v->result.problems++ == 0 && !cz__text_print(&v->first, "%s", sentence))
        return cz__fail(CZ_ERR_MEMORY, "archive verify: no memory for a sentence");
    return v->options.problem ? v->options.problem(sentence, v->options.context)
                              : cz__fail(CZ_ERR_FORMAT, "%s", sentence);
}

/* A failure as a problem; what could not be looked at is none: no rights, no descriptors, no
 * memory, a medium that does not answer. A file that is not there is one. */
static cz_status judge(verifying *v, cz_status status)
{
    const bool unseen = status == CZ_ERR_IO && !cz__reader_missed();
    return status == CZ_OK || status == CZ_ERR_MEMORY || unseen ? status
                                                                : problem(cz_last_error(), v);
}

static cz_status judge_damage(void *context)
{
    return problem(cz_last_error(), context);
}

static void tell_progress(const verifying *v, uint64_t done, uint64_t total)
{
    if (v->options.progress)
        v->options.progress(done, total, v->options.context);
}

static cz_status verify_dictionary(verifying *v, cz_status status, cz_state_dict **dict)
{
    cz_state_dict_destroy(dict);
    return judge(v, status);
}

static cz_status verify_part(verifying *v, int rank)
{
    cz__input *input = &v->archive->input;
    cz_state_dict *own = NULL;
    cz_status status = cz__input_part(input, rank);
    if (status != CZ_OK)
        return judge(v, status);
    const cz__safetensors *header = input->parts[rank].header;
    CZ_TRY(cz__coverage_add(&v->coverage, header, rank));
    v->result.tensors += cz__safetensors_count(header);
    v->result.bytes += cz__safetensors_data_begin(header) + cz__safetensors_data_bytes(header);
    v->result.checksums += cz__safetensors_count(header) + 2; /* the header's and the mark's */
    const int64_t before = v->result.problems;
    CZ_TRY(judge(v, cz__input_verify_each(input, rank, judge_damage, v)));
    if (v->result.problems > before) /* its dictionary has the same tensors */
        return CZ_OK;
    status = cz__input_own(input, rank, &own);
    return verify_dictionary(v, status, &own);
}

/* The folder has the name that the index gives it, or nobody finds it. */
static cz_status verify_name(verifying *v)
{
    char wanted[64], sentence[600];
    const cz__input *input = &v->archive->input;
    const char *slash = strrchr(input->path, '/');
    const char *name = slash ? slash + 1 : input->path;
    cz__generation_name(wanted, input->index.generation, input->index.step);
    if (strcmp(name, wanted) == 0 || strcmp(name, ".") == 0)
        return CZ_OK;
    snprintf(sentence, sizeof sentence,
             "the folder is called %s, by its index it is %s: a load does not find it",
             cz__show(name).text, wanted);
    return problem(sentence, v);
}

static cz_status verify_generation(verifying *v)
{
    cz_state_dict *common = NULL;
    cz__input *input = &v->archive->input;
    const int ranks = input->index.world_size;
    tell_progress(v, 0, (uint64_t)ranks);
    for (int k = 0; k < ranks; k++) {
        CZ_TRY(verify_part(v, k));
        tell_progress(v, (uint64_t)k + 1, (uint64_t)ranks);
    }
    v->result.checksums++; /* the index's */
    CZ_TRY(verify_dictionary(v, cz__input_common(input, &common), &common));
    CZ_TRY(verify_name(v));
    return v->result.problems == 0 ? cz__coverage_check(&v->coverage, &input->index, problem, v)
                                   : CZ_OK;
}

/* Its entries have CRC-32s. */
static cz_status verify_entries(verifying *v, const cz__bundle *b)
{
    cz__torch_measure(b->torch->file, &v->result.checksums, &v->result.bytes);
    return judge(v, cz__bundle_verify(b, 0, 1));
}

/* Headers and names were checked when they were opened; can all bytes be read? */
static cz_status verify_files(verifying *v, const cz__bundle *b)
{
    cz__checksum ignored;
    uint64_t done = 0;
    for (int f = 0; f < b->count; f++)
        v->result.bytes += cz__safetensors_data_begin(b->files[f].header) +
                           cz__safetensors_data_bytes(b->files[f].header);
    tell_progress(v, 0, v->result.bytes);
    for (int f = 0; f < b->count; f++) {
        cz__reader *reader;
        cz_status status = cz__reader_open(&reader, b->files[f].path);
        if (!status) {
            const uint64_t bytes = cz__reader_bytes(reader);
            status = cz__reader_checksum(reader, 0, bytes, &ignored);
            cz__reader_close(&reader);
            done += bytes;
            tell_progress(v, done, v->result.bytes);
        }
        CZ_TRY(judge(v, status));
    }
    return CZ_OK;
}

static cz_status verify_bundle(verifying *v)
{
    cz_state_dict *common = NULL;
    const cz__bundle *b = cz__input_bundle(&v->archive->input);
    v->result.tensors = b->tensor_count;
    CZ_TRY(b->torch ? verify_entries(v, b) : verify_files(v, b));
    return verify_dictionary(v, cz__input_common(&v->archive->input, &common), &common);
}

const cz__option_table cz__verify_options =
    CZ__OPTION_TABLE(cz_verify_options, CZ__OPTION(cz_verify_options, problem, CZ__LOCAL, CZ__ANY),
                     CZ__OPTION(cz_verify_options, progress, CZ__LOCAL, CZ__ANY),
                     CZ__OPTION(cz_verify_options, context, CZ__LOCAL, CZ__ANY));

cz_status cz_archive_verify(cz_archive *archive, const cz_verify_options *options,
                            cz_verify_result *result)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    verifying v = {.archive = archive};
    if (!archive)
        return cz__fail(CZ_ERR_ARGUMENT, "archive verify: archive is NULL");
    CZ_TRY(cz__options_read(&v.options, &cz__verify_options, options, "archive verify"));
    if (result)
        CZ_TRY(cz__options_check_size(result->size, "cz_verify_result"));
    cz_status status = archive->input.form ? verify_bundle(&v) : verify_generation(&v);
    if (!status && v.result.problems > 0)
        status = cz__fail(CZ_ERR_FORMAT, "%s", cz__text_get(&v.first));
    cz__coverage_clear(&v.coverage);
    cz__text_clear(&v.first);
    if (result)
        (void)cz__options_write(result, &v.result, sizeof v.result, "cz_verify_result");
    return status;
}

/* ---- folders ---- */

typedef struct listing {
    cz_archive_visitor visit;
    void *context;
} listing;

static cz_status visit_one(const char *path, const cz__generation *g, void *context)
{
    const listing *l = context;
    const cz_archive_generation generation = {.size = sizeof generation,
                                              .path = path,
                                              .number = g->number,
                                              .step = g->step,
                                              .complete = cz__generation_complete(g)};
    return CZ__CALL_PROGRAM(l->visit(&generation, l->context));
}

cz_status cz_archive_list(const char *folder, cz_archive_visitor visit, void *context)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    listing l = {visit, context};
    if (!folder || !visit)
        return cz__fail(CZ_ERR_ARGUMENT, "archive list: %s is NULL", folder ? "visit" : "folder");
    return cz__generations_visit(folder, visit_one, &l);
}
