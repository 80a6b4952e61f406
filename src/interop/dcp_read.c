/* SPDX-License-Identifier: MIT */
/* Elements of a folder of torch.distributed.checkpoint: parts are opened when they are wanted, and
 * what is read of a tensor is put together from its chunks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "interop/dcp.h"

enum {
    MOST_OPEN = 64,
    BLOCK = 64 * 1024, /* bytes of a chunk that are read at once, to be dealt out */
    LONG = 16 * 1024   /* bytes of a run that are read to where they belong */
};

static cz_status no_memory(const cz__dcp *d)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", d->path);
}

/* ---- parts ---- */

/* A file's reader; not too many at a time. */
static cz_status open_file(cz__dcp *d, int file)
{
    if (d->files[file].reader)
        return CZ_OK;
    for (int f = 0; d->open >= MOST_OPEN && f < d->file_count; f++)
        cz__reader_close(&d->files[f].reader);
    d->open = d->open >= MOST_OPEN ? 0 : d->open;
    CZ_TRY(cz__reader_open(&d->files[file].reader, d->files[file].path));
    d->open++;
    return CZ_OK;
}

static cz_status name_part(const cz__dcp *d, const cz__dcp_part *part, cz__text *name)
{
    return cz__text_print(name, "%s (from byte %" PRIu64 " on)", d->files[part->file].path,
                          part->begin)
               ? CZ_OK
               : no_memory(d);
}

/* Without checksums, if it was not verified. */
static cz__verified region_of(const cz__dcp *d, const cz__dcp_part *part)
{
    const cz__dcp_part *listed = cz__dcp_listed(d, part);
    return (cz__verified){part->begin, part->bytes, d->block,
                          listed->verified ? d->sums + listed->first_sum : NULL};
}

cz_status cz__dcp_open_part(cz__dcp *d, const cz__dcp_part *part, cz__torch **out)
{
    const cz__verified region = region_of(d, part);
    cz__text name = {0};
    *out = NULL;
    CZ_TRY(open_file(d, part->file));
    cz_status status = name_part(d, part, &name);
    if (!status)
        status =
            cz__torch_open_part(out, cz__text_get(&name), d->files[part->file].reader, &region);
    cz__text_clear(&name);
    return status;
}

/* The view outlives what it is a view in. */
static cz_status keep_view(cz__dcp *d, const cz__torch *torch, const cz__pickle_value *value,
                           const char *name, cz__dcp_view **out)
{
    cz__dcp_view *view = *out = cz__calloc(1, sizeof *view);
    if (!view)
        return no_memory(d);
    const cz_status status = cz__torch_tensor_of(torch, value, name, &view->tensor);
    if (status) {
        cz__free(view);
        *out = NULL;
        return status;
    }
    if (view->tensor.storage)
        view->storage = *view->tensor.storage;
    view->storage.name = NULL;
    view->tensor.storage = &view->storage;
    view->tensor.form.name = NULL;
    return CZ_OK;
}

cz_status cz__dcp_add_view(cz__dcp *d, const cz__dcp_part *part, const cz__torch *torch,
                           const cz__pickle_value *value, const char *name, int64_t *number)
{
    cz__dcp_view *view = NULL;
    CZ_TRY(cz__budget_spend(&d->budget, sizeof(cz__dcp_tensor) + sizeof *view, "its tensors"));
    CZ_TRY(cz__dcp_reserve(d, 1));
    CZ_TRY(keep_view(d, torch, value, name, &view));
    cz__dcp_tensor *t = &d->tensors[d->tensor_count];
    const int dimensions = view->tensor.form.dimensions;
    *t = (cz__dcp_tensor){.name = name, .form = view->tensor.form};
    t->chunks = cz__calloc(1, sizeof *t->chunks);
    t->boxes = cz__calloc(2 * (size_t)dimensions + 1, sizeof *t->boxes);
    if (!t->chunks || !t->boxes) {
        cz__free(t->chunks);
        cz__free(t->boxes);
        cz__free(view);
        return no_memory(d);
    }
    memcpy(t->boxes + dimensions, t->form.shape, (size_t)dimensions * sizeof *t->boxes);
    const int64_t count = (int64_t)(t->form.end / cz__type_unit(t->form.dtype));
    t->chunks[0] = (cz__dcp_chunk){.offsets = t->boxes,
                                   .sizes = t->boxes + dimensions,
                                   .count = count,
                                   .last = count - 1,
                                   .part = *part,
                                   .view = view};
    t->chunk_count = count > 0;
    if (count == 0) {
        cz__free(view);
        t->chunks[0].view = NULL;
    }
    *number = d->tensor_count++;
    return CZ_OK;
}

/* ---- verification ---- */

/* The checksums of its blocks. */
static cz_status take_sums(cz__dcp *d, const cz__dcp_part *listed)
{
    cz__reader *reader = d->files[listed->file].reader;
    const size_t piece = (size_t)(d->block < BLOCK ? BLOCK : d->block);
    char *bytes = cz__allocate(CZ_MEMORY_STAGING, piece);
    cz_status status = bytes ? CZ_OK : no_memory(d);
    uint64_t *sum = d->sums + listed->first_sum;
    for (uint64_t done = 0, some; done < listed->bytes && !status; done += some) {
        some = listed->bytes - done < piece ? listed->bytes - done : piece;
        status = cz__reader_read(reader, listed->begin + done, bytes, (size_t)some);
        for (uint64_t at = 0; at < some && !status; at += d->block)
            *sum++ =
                cz__checksum_of(bytes + at, (size_t)(some - at < d->block ? some - at : d->block))
                    .low;
    }
    cz__free(bytes);
    return status;
}

/* What has the CRCs has those checksums, and so has all that is read from here on. */
static cz_status verify_part(cz__dcp *d, const cz__dcp_part *part)
{
    cz__torch *torch = NULL;
    cz__dcp_part *listed = cz__dcp_listed(d, part);
    if (listed->verified)
        return CZ_OK;
    CZ_TRY(open_file(d, listed->file));
    CZ_TRY(take_sums(d, listed));
    d->held.count = 0;
    listed->verified = true;
    cz_status status = cz__dcp_open_part(d, listed, &torch);
    for (int64_t i = 0; !status && i < torch->entry_count; i++)
        status = cz__container_verify(torch->container, &torch->entries[i]);
    cz__torch_close(&torch);
    listed->verified = status == CZ_OK;
    return status;
}

/* What is in a chunk's part is what the metadata say. */
static cz_status check_view(const cz__dcp *d, const cz__dcp_tensor *t, const cz__dcp_chunk *c,
                            const cz__torch_tensor *found)
{
    const int dimensions = t->form.dimensions;
    if (found->form.dtype == t->form.dtype && found->form.dimensions == dimensions &&
        memcmp(found->form.shape, c->sizes, (size_t)dimensions * sizeof *c->sizes) == 0)
        return CZ_OK;
    return cz__fail(CZ_ERR_FORMAT,
                    "%s: at byte %" PRIu64
                    " is not the chunk of tensor '%s' that the metadata say: it has another type "
                    "or other sizes",
                    d->files[c->part.file].path, c->part.begin, cz__show(t->name).text);
}

static cz_status open_chunk(cz__dcp *d, const cz__dcp_tensor *t, cz__dcp_chunk *c)
{
    cz__torch *torch;
    cz__dcp_view *view = NULL;
    CZ_TRY(verify_part(d, &c->part));
    if (c->view)
        return CZ_OK;
    CZ_TRY(cz__dcp_open_part(d, &c->part, &torch));
    cz_status status = keep_view(d, torch, cz__torch_root(torch), t->name, &view);
    if (!status)
        status = check_view(d, t, c, &view->tensor);
    cz__torch_close(&torch);
    if (status != CZ_OK)
        cz__free(view);
    else
        c->view = view;
    return status;
}

/* ---- reading ---- */

/* Elements of a chunk that lie together in the tensor too: a row, or several where the chunk has
 * whole ones. */
static int64_t run_of(const cz__dcp_tensor *t, const cz__dcp_chunk *c)
{
    int64_t run = 1;
    for (int d = t->form.dimensions - 1; d >= 0; d--) {
        run *= c->sizes[d];
        if (c->sizes[d] != t->form.shape[d])
            break;
    }
    return run;
}

/* Where in the tensor the element of a chunk is. */
static int64_t place_of(const cz__dcp_tensor *t, const cz__dcp_chunk *c, int64_t element)
{
    int64_t place = 0, stride = 1;
    for (int d = t->form.dimensions - 1; d >= 0; d--) {
        place += (c->offsets[d] + element % c->sizes[d]) * stride;
        element /= c->sizes[d];
        stride *= t->form.shape[d];
    }
    return place;
}

/* The first run that ends behind a place of the tensor, in runs; runs go up in both. */
static int64_t first_run(const cz__dcp_tensor *t, const cz__dcp_chunk *c, int64_t run,
                         int64_t place)
{
    int64_t low = 0, high = c->count / run;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (place_of(t, c, middle * run) + run <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

typedef struct wanted {
    const cz__dcp_tensor *t;
    const cz__dcp_chunk *c;
    int64_t begin, end, run;
    size_t size;
    char *to;
} wanted;

/* What of a run is wanted: elements of the chunk, and where they go; NULL: nothing. */
static char *clip(const wanted *w, int64_t run, int64_t *begin, int64_t *end)
{
    const int64_t place = place_of(w->t, w->c, run * w->run);
    const int64_t before = place < w->begin ? w->begin - place : 0;
    const int64_t behind = place + w->run > w->end ? place + w->run - w->end : 0;
    *begin = run * w->run + before;
    *end = (run + 1) * w->run - behind;
    return *begin < *end ? w->to + (size_t)(place + before - w->begin) * w->size : NULL;
}

/* Many short runs: a block of the chunk, then each to its place. */
static cz_status deal_out(const wanted *w, const cz__torch *from, int64_t first, int64_t last,
                          char *block)
{
    const int64_t at_once = (int64_t)(BLOCK / w->size) / w->run;
    for (int64_t run = first; run < last; run += at_once) {
        const int64_t until = run + at_once < last ? run + at_once : last;
        CZ_TRY(cz__torch_read(from, &w->c->view->tensor, run * w->run, until * w->run, block));
        for (int64_t k = run; k < until; k++) {
            int64_t begin, end;
            char *to = clip(w, k, &begin, &end);
            if (to)
                memcpy(to, block + (size_t)(begin - run * w->run) * w->size,
                       (size_t)(end - begin) * w->size);
        }
    }
    return CZ_OK;
}

static cz_status read_chunk(cz__dcp *d, const wanted *w)
{
    CZ_TRY(open_file(d, w->c->part.file));
    const cz__verified region = region_of(d, &w->c->part);
    const cz__torch from = {
        .reader = d->files[w->c->part.file].reader, .part = &region, .held = &d->held};
    int64_t last = w->c->count / w->run;
    const int64_t first = first_run(w->t, w->c, w->run, w->begin);
    if (w->end <= w->c->last)
        last = first_run(w->t, w->c, w->run, w->end - 1) + 1;
    if ((size_t)w->run * w->size <= LONG) {
        char *block = cz__allocate(CZ_MEMORY_STAGING, BLOCK);
        const cz_status status = block ? deal_out(w, &from, first, last, block) : no_memory(d);
        cz__free(block);
        return status;
    }
    for (int64_t run = first; run < last; run++) {
        int64_t begin, end;
        char *to = clip(w, run, &begin, &end);
        if (to)
            CZ_TRY(cz__torch_read(&from, &w->c->view->tensor, begin, end, to));
    }
    return CZ_OK;
}

static cz_status read_elements(const cz__torch *torch, const cz__torch_tensor *tensor,
                               int64_t begin, int64_t end, void *to)
{
    cz__dcp *d = torch->stored;
    const cz__dcp_tensor *t = &d->tensors[tensor->number];
    for (int64_t i = 0; i < t->chunk_count; i++) {
        cz__dcp_chunk *c = &t->chunks[i];
        if (c->last < begin || c->first >= end)
            continue;
        CZ_TRY(open_chunk(d, t, c));
        const wanted w = {t, c, begin, end, run_of(t, c), cz__type_unit(t->form.dtype), to};
        CZ_TRY(read_chunk(d, &w));
    }
    return CZ_OK;
}

/* ---- as a store ---- */

/* ('tensor of a folder', number) where a storage would be. */
static cz_status find_tensor(const cz__torch *torch, const cz__pickle_value *value,
                             const char *name, cz__torch_tensor *tensor)
{
    const cz__pickle *p = torch->pickle;
    const cz__dcp *d = torch->stored;
    const cz__pickle_value *id = NULL;
    if (value->kind == CZ__PICKLE_CALL && cz__pickle_item(p, value, 1)->count > 0)
        id = cz__pickle_item(p, cz__pickle_item(p, value, 1), 0);
    if (!id && value->kind == CZ__PICKLE_OPAQUE)
        return cz__dcp_refuse(d, "'%s' is of %s.%s, wanted a tensor: nothing was executed",
                              cz__show(name).text, cz__show(value->module).text,
                              cz__show(value->name).text);
    if (!id || id->kind != CZ__PICKLE_PERSISTENT)
        return cz__dcp_refuse(d, "'%s' is %s, wanted a tensor", cz__show(name).text,
                              cz__pickle_kind_name(value->kind));
    tensor->number = cz__pickle_item(p, cz__pickle_item(p, id, 0), 1)->integer;
    if (tensor->number < 0 || tensor->number >= d->tensor_count)
        return cz__dcp_refuse(d, "'%s' is a tensor that it has not", cz__show(name).text);
    tensor->form = d->tensors[tensor->number].form;
    tensor->form.name = name;
    return CZ_OK;
}

/* Parts are one rank's each, and so are their chunks: that they are what the metadata say. */
static cz_status verify(const cz__torch *torch, int rank, int world_size)
{
    cz__dcp *d = torch->stored;
    d->held.count = 0;
    memset(d->sums, 0, (size_t)d->sum_count * sizeof *d->sums);
    for (int64_t i = 0; i < d->part_count; i++)
        d->parts[i].verified = false;
    for (int64_t i = rank; i < d->part_count; i += world_size)
        CZ_TRY(verify_part(d, &d->parts[i]));
    for (int64_t t = 0; t < d->tensor_count; t++)
        for (int64_t c = 0; c < d->tensors[t].chunk_count; c++)
            if (cz__dcp_listed(d, &d->tensors[t].chunks[c].part)->verified)
                CZ_TRY(open_chunk(d, &d->tensors[t], &d->tensors[t].chunks[c]));
    return CZ_OK;
}

static uint64_t *sums_of(const cz__torch *torch, int64_t *count)
{
    const cz__dcp *d = torch->stored;
    *count = d->sum_count;
    return d->sums;
}

static void trust(const cz__torch *torch)
{
    const cz__dcp *d = torch->stored;
    for (int64_t i = 0; i < d->part_count; i++)
        d->parts[i].verified = true;
}

static void measure(const cz__torch *torch, int64_t *checksums, uint64_t *bytes)
{
    const cz__dcp *d = torch->stored;
    *checksums = d->part_count;
    for (int64_t i = 0; i < d->part_count; i++)
        *bytes += d->parts[i].bytes;
}

static const char *file_of(const cz__torch *torch, int64_t number)
{
    const cz__dcp *d = torch->stored;
    if (number == 0)
        return cz__text_get(&d->where);
    return number <= d->file_count ? d->files[number - 1].path : NULL;
}

static void close_store(cz__torch *torch)
{
    cz__dcp *d = torch->stored;
    cz__dcp_close(&d);
}

const cz__torch_store cz__dcp_store = {find_tensor, read_elements, verify,  sums_of,
                                       trust,       measure,       file_of, close_store};
