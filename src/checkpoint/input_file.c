/* SPDX-License-Identifier: MIT */
/* One file of a generation: is it what the index and its mark say? */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/input.h"
#include "io/json.h"
#include "io/text.h"

enum { MOST_MARK = 1 << 30, BATCH = 4 << 20 };

void cz__input_file_clear(cz__input_file *file)
{
    cz__reader_close(&file->reader);
    cz__safetensors_destroy(&file->header);
    cz__free(file->path);
    json_decref(file->sums);
    json_decref(file->mark);
    cz__free(file->late);
    *file = (cz__input_file){0};
}

/* ---- the header ---- */

static cz_status check_sum(const char *path, const char *what, const char *wanted,
                           cz__checksum found)
{
    cz__checksum sum;
    if (cz__checksum_scan(wanted, &sum) && cz__checksum_equal(sum, found))
        return CZ_OK;
    return cz__fail(CZ_ERR_FORMAT,
                    "%s: %s is damaged: its checksum is not the one it was saved with", path, what);
}

/* Before it is read as a header: what is damaged there is not a type that nobody knows. */
static cz_status header_sum(const cz__input_file *file, cz__checksum *sum)
{
    uint8_t digits[8];
    uint64_t length = 0;
    const uint64_t bytes = cz__reader_bytes(file->reader);
    CZ_TRY(cz__reader_read(file->reader, 0, digits, sizeof digits));
    for (int i = 7; i >= 0; i--)
        length = length << 8 | digits[i];
    if (length > bytes - sizeof digits)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: the header is damaged: its length is %" PRIu64
                        ", the file has %" PRIu64 " bytes",
                        file->path, length, bytes);
    return cz__reader_checksum(file->reader, 0, sizeof digits + length, sum);
}

/* `description` has the file's length, and the checksums of header and tensors. */
typedef struct described {
    int64_t bytes;
    const char *header; /* borrowed */
} described;

static cz_status read_description(cz__input_file *file, const json_t *json, const char *where,
                                  described *out)
{
    json_t *sums;
    CZ_TRY(cz__json_integer(json, where, "bytes", 0, INT64_MAX, &out->bytes));
    CZ_TRY(cz__json_text(json, where, "header", &out->header));
    CZ_TRY(cz__json_array(json, where, "tensors", &sums));
    file->sums = json_incref(sums);
    return CZ_OK;
}

static cz_status check_bytes(const cz__input_file *file, uint64_t found, int64_t wanted)
{
    return found == (uint64_t)wanted
               ? CZ_OK
               : cz__fail(CZ_ERR_FORMAT, "%s: it has %" PRIu64 " bytes, it was saved with %" PRId64,
                          file->path, found, wanted);
}

static cz_status check_sum_count(const cz__input_file *file)
{
    return cz__safetensors_count(file->header) == (int64_t)json_array_size(file->sums)
               ? CZ_OK
               : cz__fail(CZ_ERR_FORMAT, "%s: it has %" PRId64 " tensors and %zu checksums",
                          file->path, cz__safetensors_count(file->header),
                          json_array_size(file->sums));
}

static cz_status open_described(cz__input_file *file, const json_t *json, const char *where)
{
    described d;
    cz__checksum found;
    CZ_TRY(read_description(file, json, where, &d));
    CZ_TRY(cz__reader_open(&file->reader, file->path));
    CZ_TRY(check_bytes(file, cz__reader_bytes(file->reader), d.bytes));
    CZ_TRY(header_sum(file, &found));
    CZ_TRY(check_sum(file->path, "the header", d.header, found));
    CZ_TRY(cz__safetensors_read(&file->header, cz__reader_file(file->reader), file->path));
    return check_sum_count(file);
}

static cz_status open_sent(cz__input_file *file, const json_t *json, const char *where,
                           const cz__file_head *head)
{
    described d;
    file->elsewhere = true;
    CZ_TRY(read_description(file, json, where, &d));
    CZ_TRY(check_bytes(file, head->file_bytes, d.bytes));
    CZ_TRY(check_sum(file->path, "the header", d.header,
                     cz__checksum_of(head->header, head->header_bytes)));
    CZ_TRY(cz__safetensors_parse(&file->header, file->path, head->header, head->header_bytes,
                                 head->file_bytes));
    return check_sum_count(file);
}

/* ---- a part ---- */

typedef struct check_state {
    const cz__input_file *file;
    int64_t expected;
} check_state;

static cz_status check_piece(const cz__piece *piece, void *context)
{
    check_state *c = context;
    const cz__safetensors_entry *entry = cz__safetensors_find(c->file->header, piece->name);
    c->expected++;
    if (!entry)
        return cz__fail(CZ_ERR_FORMAT, "%s: no tensor '%s', which the index has there",
                        c->file->path, cz__show(piece->name).text);
    bool same = entry->dtype == piece->dtype && entry->dimensions == piece->dimensions;
    for (int d = 0; same && d < piece->dimensions; d++)
        same = entry->shape[d] == piece->shape[d];
    if (!same)
        return cz__fail(CZ_ERR_FORMAT, "%s: tensor '%s' has not the type and shape of the index",
                        c->file->path, cz__show(piece->name).text);
    return CZ_OK;
}

/* What the index says is there, and nothing but the rank's own tensors beside. */
static cz_status check_contents(const cz__input_file *file, const cz__index *index, int rank)
{
    check_state c = {file, 0};
    CZ_TRY(cz__index_visit(index, rank, check_piece, &c));
    const int64_t count = cz__safetensors_count(file->header);
    for (int64_t i = 0; i < count; i++)
        c.expected += strncmp(cz__safetensors_entry_at(file->header, i)->name, "own/", 4) == 0;
    if (c.expected != count)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: it has %" PRId64 " tensors, the index has %" PRId64 " there",
                        file->path, count, c.expected);
    return CZ_OK;
}

static cz_status check_mark(const json_t *mark, const cz__index *index, const char *path, int rank)
{
    const char *format, *id;
    int64_t number;
    CZ_TRY(cz__json_text(mark, path, "format", &format));
    if (strcmp(format, "czero checkpoint part") != 0)
        return cz__fail(CZ_ERR_FORMAT, "%s: its format is '%s', wanted 'czero checkpoint part'",
                        path, cz__show(format).text);
    CZ_TRY(cz__json_integer(mark, path, "version", 1, CZ__FIRST_VERSION, &number));
    CZ_TRY(cz__json_text(mark, path, "id", &id));
    if (strcmp(id, index->id) != 0)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: it belongs to another save (id %.32s, the index has %s)", path, id,
                        index->id);
    CZ_TRY(cz__json_integer(mark, path, "rank", rank, rank, &number));
    CZ_TRY(
        cz__json_integer(mark, path, "generation", index->generation, index->generation, &number));
    CZ_TRY(cz__json_integer(mark, path, "step", index->step, index->step, &number));
    return cz__json_integer(mark, path, "world_size", index->world_size, index->world_size,
                            &number);
}

/* `head` NULL: it is here. */
static cz_status read_mark(cz__input_file *file, const cz__input *input, const char *path, int rank,
                           const cz__file_head *head)
{
    char *bytes = NULL;
    size_t count = head ? head->mark_bytes : 0;
    if (!head)
        CZ_TRY(cz__file_read(path, MOST_MARK, &bytes, &count));
    const cz_status status = cz__unseal(&file->mark, path, head ? head->mark : bytes, count);
    cz__free(bytes);
    return status == CZ_OK ? check_mark(file->mark, &input->index, path, rank) : status;
}

static cz_status open_part(cz__input_file *file, const cz__input *input, int rank,
                           const cz__file_head *head)
{
    cz__text path = {0};
    const int ranks = input->index.world_size;
    cz__input_file_clear(file);
    cz_status status = cz__part_path(&path, input->path, rank, ranks, "safetensors");
    if (status)
        goto done;
    if (!(file->path = cz__strdup(cz__text_get(&path))))
        status = cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path");
    if (status)
        goto done;
    status = cz__part_path(&path, input->path, rank, ranks, "json");
    if (status)
        goto done;
    status = read_mark(file, input, cz__text_get(&path), rank, head);
    if (status)
        goto done;
    status = head ? open_sent(file, file->mark, cz__text_get(&path), head)
                  : open_described(file, file->mark, cz__text_get(&path));
done:
    cz__text_clear(&path);
    if (!status)
        status = check_contents(file, &input->index, rank);
    if (status != CZ_OK) /* the next call looks again */
        cz__input_file_clear(file);
    return status;
}

cz_status cz__input_file_open_part(cz__input_file *file, const cz__input *input, int rank)
{
    return open_part(file, input, rank, NULL);
}

const json_t *cz__input_common_file(const cz__input *input)
{
    const json_t *file = json_object_get(json_object_get(input->index.json, "common"), "file");
    return file && !json_is_null(file) ? file : NULL;
}

static cz_status open_common(cz__input_file *file, const cz__input *input, const json_t *json,
                             const cz__file_head *head)
{
    cz__text path = {0};
    cz__input_file_clear(file);
    if (cz__common_path(&path, input->path) == CZ_OK)
        file->path = cz__strdup(cz__text_get(&path));
    cz__text_clear(&path);
    if (!file->path)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path");
    return head ? open_sent(file, json, input->path, head)
                : open_described(file, json, input->path);
}

cz_status cz__input_file_open_common(cz__input_file *file, const cz__input *input,
                                     const json_t *description)
{
    return open_common(file, input, description, NULL);
}

cz_status cz__input_file_from_head(cz__input_file *file, const cz__input *input, int rank,
                                   const cz__file_head *head)
{
    return rank >= 0 ? open_part(file, input, rank, head)
                     : open_common(file, input, cz__input_common_file(input), head);
}

/* ---- elements against checksums ---- */

cz_status cz__input_file_check(const cz__input_file *file, int64_t index, cz__checksum found)
{
    cz__text what = {0};
    const char *wanted = json_string_value(json_array_get(file->sums, (size_t)index));
    cz__text_print(&what, "tensor '%s'",
                   cz__show(cz__safetensors_entry_at(file->header, index)->name).text);
    const cz_status status =
        check_sum(file->path, cz__text_get(&what), wanted ? wanted : "", found);
    cz__text_clear(&what);
    return status;
}

/* What is done about a damaged tensor; `tell` NULL: that is the end. */
typedef struct part_verification {
    char *block; /* owned */
    cz__damage_visitor tell;
    void *context;
    cz__block_sums *sums; /* borrowed */
} part_verification;

static cz_status judge(const cz__input_file *file, const part_verification *v, int64_t index,
                       cz__checksum found)
{
    const cz_status status = cz__input_file_check(file, index, found);
    return status == CZ_ERR_FORMAT && v->tell ? v->tell(v->context) : status;
}

/* Tensors that are small come in one piece with those after them. */
static cz_status verify_batch(const cz__input_file *file, const part_verification *v, int64_t first,
                              int64_t *next)
{
    const uint64_t base = cz__safetensors_data_begin(file->header);
    const cz__safetensors_entry *from = cz__safetensors_entry_at(file->header, first);
    const int64_t count = cz__safetensors_count(file->header);
    int64_t last = first; /* beyond the batch */
    uint64_t end = from->begin;
    for (; last < count; last++) {
        const cz__safetensors_entry *entry = cz__safetensors_entry_at(file->header, last);
        if (entry->end - from->begin > BATCH)
            break;
        end = entry->end;
    }
    CZ_TRY(
        cz__reader_read(file->reader, base + from->begin, v->block, (size_t)(end - from->begin)));
    cz__block_sums_add(v->sums, v->block, (size_t)(end - from->begin));
    for (int64_t i = first; i < last; i++) {
        const cz__safetensors_entry *entry = cz__safetensors_entry_at(file->header, i);
        CZ_TRY(judge(file, v, i,
                     cz__checksum_of(v->block + (entry->begin - from->begin),
                                     (size_t)(entry->end - entry->begin))));
    }
    *next = last;
    return CZ_OK;
}

static cz_status verify_all(const cz__input_file *file, const part_verification *v)
{
    for (int64_t i = 0; i < cz__safetensors_count(file->header);) {
        const cz__safetensors_entry *entry = cz__safetensors_entry_at(file->header, i);
        cz__checksum found;
        if (entry->end - entry->begin <= BATCH) {
            CZ_TRY(verify_batch(file, v, i, &i));
            continue;
        }
        CZ_TRY(cz__reader_checksums(file->reader,
                                    cz__safetensors_data_begin(file->header) + entry->begin,
                                    entry->end - entry->begin, &found, v->sums));
        CZ_TRY(judge(file, v, i++, found));
    }
    return CZ_OK;
}

cz_status cz__input_file_verify(const cz__input_file *file, cz__damage_visitor tell, void *context,
                                cz__block_table *blocks)
{
    cz__block_sums sums;
    CZ_TRY(cz__block_sums_begin(&sums, blocks, cz__safetensors_data_bytes(file->header)));
    const part_verification v = {cz__allocate(CZ_MEMORY_STAGING, BATCH), tell, context, &sums};
    const cz_status status =
        v.block
            ? verify_all(file, &v)
            : cz__fail(CZ_ERR_MEMORY, "%s: no memory for a block of %d bytes", file->path, BATCH);
    cz__free(v.block);
    cz__block_sums_end(&sums, status == CZ_OK);
    return status;
}

/* ---- dictionaries ---- */

/* What another rank has comes later. */
static cz_status wait_for(cz__input_file *file, int64_t entry, void *data)
{
    cz__late_tensor *late =
        cz__grow(file->late, file->late_count, &file->late_capacity, sizeof *late);
    if (!late)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for a list of tensors", file->path);
    file->late = late;
    file->late[file->late_count++] = (cz__late_tensor){entry, data};
    return CZ_OK;
}

static cz_status find_tensor(const char *name, cz_state_dict *dict, const char *key, void *context)
{
    cz__input_file *file = context;
    const cz__safetensors_entry *entry =
        file->header ? cz__safetensors_find(file->header, name) : NULL;
    void *data;
    if (!entry)
        return cz__fail(CZ_ERR_FORMAT, "%s: no tensor '%s', which its dictionary has",
                        file->path ? file->path : "checkpoint", cz__show(name).text);
    const size_t bytes = (size_t)(entry->end - entry->begin);
    const int64_t index = entry - cz__safetensors_entry_at(file->header, 0);
    CZ_TRY(cz__type_check(entry->dtype, file->path, name));
    CZ_TRY(
        cz_state_dict_add_tensor(dict, key, entry->dtype, entry->dimensions, entry->shape, &data));
    if (file->elsewhere)
        return wait_for(file, index, data);
    CZ_TRY(cz__reader_read(file->reader, cz__safetensors_data_begin(file->header) + entry->begin,
                           data, bytes));
    return cz__input_file_check(file, index, cz__checksum_of(data, bytes));
}

cz_status cz__input_file_dict(cz__input_file *file, const json_t *json, const char *where,
                              cz_state_dict **out)
{
    *out = NULL;
    return json ? cz__dict_from_json(out, json, where, find_tensor, file)
                : cz_state_dict_create(out);
}

/* ---- a file that another rank has ----
 *
 * Dictionaries are made without elements, which are filled in as they come. */

void cz__input_file_come(const cz__input_file *file, uint64_t offset, const char *bytes,
                         size_t count)
{
    for (int64_t i = 0; i < file->late_count; i++) {
        const cz__safetensors_entry *entry =
            cz__safetensors_entry_at(file->header, file->late[i].entry);
        const uint64_t begin = entry->begin > offset ? entry->begin : offset;
        const uint64_t end = entry->end < offset + count ? entry->end : offset + count;
        if (begin < end)
            memcpy(file->late[i].data + (begin - entry->begin), bytes + (begin - offset),
                   (size_t)(end - begin));
    }
}

cz_status cz__input_file_check_late(const cz__input_file *file)
{
    for (int64_t i = 0; i < file->late_count; i++) {
        const cz__late_tensor *late = &file->late[i];
        const cz__safetensors_entry *entry = cz__safetensors_entry_at(file->header, late->entry);
        CZ_TRY(cz__input_file_check(
            file, late->entry, cz__checksum_of(late->data, (size_t)(entry->end - entry->begin))));
    }
    return CZ_OK;
}

void cz__input_file_region(const cz__input_file *file, bool own, uint64_t *begin, uint64_t *end)
{
    *begin = *end = own ? 0 : cz__safetensors_data_bytes(file->header);
    if (!own) {
        *begin = 0;
        return;
    }
    for (int64_t i = cz__safetensors_count(file->header) - 1; i >= 0; i--) {
        const cz__safetensors_entry *entry = cz__safetensors_entry_at(file->header, i);
        if (strncmp(entry->name, "own/", 4) != 0)
            continue;
        *end = *end ? *end : entry->end;
        *begin = entry->begin;
    }
}
