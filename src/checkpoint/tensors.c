/* SPDX-License-Identifier: MIT */
/* Tensors on their way into a file. */
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/tensors.h"

enum { BLOCK = 4 << 20 }; /* from another file at once */

void cz__tensors_clear(cz__tensors *t)
{
    cz__safetensors_destroy(&t->header);
    cz__free(t->head);
    cz__free(t->extents);
    *t = (cz__tensors){0};
}

static cz_status append(cz__tensors *t, cz__extent extent)
{
    cz__extent *extents = cz__grow(t->extents, t->count, &t->capacity, sizeof *extents);
    if (!extents)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: a list of %lld tensors",
                        (long long)t->count + 1);
    t->extents = extents;
    t->extents[t->count++] = extent;
    t->bytes += extent.bytes;
    return CZ_OK;
}

cz_status cz__tensors_add_piece(cz__tensors *t, const cz__piece *piece, const cz__source *source)
{
    cz__extent extent = {.bytes = (size_t)(piece->end - piece->begin) * cz__type_unit(piece->dtype),
                         .stored = piece->stored,
                         .begin = piece->begin,
                         .end = piece->end,
                         .slot = piece->slot};
    CZ_TRY(
        cz__safetensors_add(t->header, piece->name, piece->dtype, piece->dimensions, piece->shape));
    if (source->checkpoint) {
        extent.data =
            cz__contents_address(source->checkpoint, piece->stored, piece->slot, piece->begin);
        extent.device = cz__contents_device(source->checkpoint, piece->stored);
    }
    return append(t, extent);
}

cz_status cz__tensors_add(const char *name, const cz_tensor *tensor, void *context)
{
    cz__tensors *t = context;
    CZ_TRY(cz__safetensors_add(t->header, name, tensor->dtype, tensor->dimensions, tensor->shape));
    return append(
        t, (cz__extent){.data = tensor->data,
                        .bytes = (size_t)cz_tensor_count(tensor) * cz_dtype_size(tensor->dtype),
                        .device = cz_device_cpu()});
}

static cz_status copy_extent(const cz__extent *c, void *to)
{
    if (c->device != cz_device_cpu())
        return c->device->copy(NULL, to, c->data, c->bytes);
    cz__copy_past_caches(to, c->data, c->bytes); /* not read again before it goes to the medium */
    return CZ_OK;
}

cz_status cz__tensors_copy(cz__tensors *t, char **to)
{
    for (int64_t i = 0; i < t->count; i++) {
        cz__extent *c = &t->extents[i];
        if (c->bytes > 0)
            CZ_TRY(copy_extent(c, *to));
        c->data = *to;
        c->device = cz_device_cpu();
        *to += c->bytes;
    }
    return CZ_OK;
}

/* ---- writing ---- */

/* Elements on another device come through a block of the host's memory. */
static cz_status append_from_device(cz__writer *writer, const cz__extent *c)
{
    char block[16384];
    for (size_t done = 0, part; done < c->bytes; done += part) {
        part = c->bytes - done < sizeof block ? c->bytes - done : sizeof block;
        CZ_TRY(c->device->copy(NULL, block, (const char *)c->data + done, part));
        CZ_TRY(cz__writer_append(writer, block, part));
    }
    return CZ_OK;
}

/* And those in other files through a larger one. */
static cz_status append_from_input(cz__writer *writer, const cz__extent *c,
                                   const cz__source *source, char *block)
{
    const int64_t size = (int64_t)c->bytes / (c->end - c->begin);
    for (int64_t at = c->begin, until; at < c->end; at = until) {
        until = c->end - at < BLOCK / size ? c->end : at + BLOCK / size;
        CZ_TRY(cz__input_read(source->input, c->stored, c->slot, at, until, block));
        CZ_TRY(cz__writer_append(writer, block, (size_t)(until - at) * (size_t)size));
        if (source->wrote)
            CZ_TRY(source->wrote((size_t)(until - at) * (size_t)size, source->context));
    }
    return CZ_OK;
}

static cz_status append_extent(cz__writer *writer, const cz__extent *c, const cz__source *source,
                               char *block)
{
    if (!c->device)
        return c->bytes > 0 ? append_from_input(writer, c, source, block) : CZ_OK;
    return c->device == cz_device_cpu() ? cz__writer_append(writer, c->data, c->bytes)
                                        : append_from_device(writer, c);
}

static cz_status write_extents(const cz__tensors *t, cz__writer *writer, const cz__source *source,
                               char *block, json_t *sums)
{
    char digits[33];
    for (int64_t i = 0; i < t->count; i++) {
        CZ_TRY(append_extent(writer, &t->extents[i], source, block));
        cz__checksum_print(cz__writer_checksum(writer), digits);
        if (sums && json_array_append_new(sums, json_string(digits)) != 0)
            return cz__fail(CZ_ERR_MEMORY, "checkpoint: a list of checksums");
    }
    return CZ_OK;
}

static cz_status write(const cz__tensors *t, int folder, const char *path, const cz__source *source,
                       char *block, json_t *sums)
{
    cz__writer *writer;
    CZ_TRY(cz__writer_create_in(&writer, folder, path, t->head_bytes + t->bytes));
    cz_status status = cz__writer_append(writer, t->head, t->head_bytes);
    (void)cz__writer_checksum(writer);
    if (status == CZ_OK)
        status = write_extents(t, writer, source, block, sums);
    if (status == CZ_OK)
        status = cz__writer_finish(&writer);
    cz__writer_destroy(&writer);
    return status;
}

cz_status cz__tensors_write(const cz__tensors *tensors, int folder, const char *path,
                            const cz__source *source, json_t *sums)
{
    const bool reads = source && source->input;
    char *block = reads ? cz__allocate(CZ_MEMORY_STAGING, BLOCK) : NULL;
    if (reads && !block)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: a block of %d bytes", BLOCK);
    const cz_status status = write(tensors, folder, path, source, block, sums);
    cz__free(block);
    return status;
}
