/* SPDX-License-Identifier: MIT */
/* Files of torch.save(): the entries, and what is no such file. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/open.h"
#include "base/status.h"
#include "interop/torch.h"

enum { MOST_PICKLE = 1 << 28, MOST_NOTE = 64, NEWEST_VERSION = 10 };

static cz_status no_memory(const char *path)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", path);
}

/* ---- what a file begins with ---- */

static bool is_old(const unsigned char *bytes, size_t count)
{
    static const unsigned char magic[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c};
    return count >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

enum { BEGINNING = 16 };

static cz_status read_beginning(const char *path, unsigned char bytes[BEGINNING], size_t *count)
{
    cz__reader *reader;
    CZ_TRY(cz__reader_open(&reader, path));
    *count = cz__reader_bytes(reader) < BEGINNING ? (size_t)cz__reader_bytes(reader) : BEGINNING;
    const cz_status status = cz__reader_read(reader, 0, bytes, *count);
    cz__reader_close(&reader);
    return status;
}

cz_status cz__torch_begins(const char *path, bool *is)
{
    size_t count;
    unsigned char bytes[BEGINNING] = {0};
    CZ_TRY(read_beginning(path, bytes, &count));
    *is = cz__container_begins(bytes, count) || is_old(bytes, count);
    return CZ_OK;
}

static cz_status check_beginning(const char *path, const unsigned char *bytes, size_t count)
{
    return is_old(bytes, count)
               ? cz__fail(CZ_ERR_UNSUPPORTED,
                          "%s: written by torch before 1.6, or with "
                          "_use_new_zipfile_serialization=False: torch.save(torch.load(old), new) "
                          "makes a file of today's form",
                          path)
               : CZ_OK;
}

/* ---- entries ---- */

/* The folder in the zip file that all is in: that of "NAME/data.pkl". */
static cz_status find_pickle(cz__torch *t, const cz__container_entry **pickle)
{
    *pickle = NULL;
    for (int64_t i = 0; i < t->entry_count; i++) {
        const char *slash = strchr(t->entries[i].name, '/');
        if (!slash || strcmp(slash, "/data.pkl") != 0)
            continue;
        if (*pickle)
            return cz__fail(CZ_ERR_FORMAT, "%s: it has %s and %s", t->path,
                            cz__show((*pickle)->name).text, cz__show(t->entries[i].name).text);
        *pickle = &t->entries[i];
    }
    if (!*pickle)
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: a zip file without an entry NAME/data.pkl, so not one of torch.save()",
                        t->path);
    const char *name = (*pickle)->name;
    (void)cz__text_append(&t->prefix, name, (size_t)(strchr(name, '/') - name));
    cz__text_print(&t->prefix, "/data/");
    cz__text_print(&t->where, "%s: %s", t->path, cz__show(name).text);
    return t->prefix.failed || t->where.failed ? no_memory(t->path) : CZ_OK;
}

/* An entry beside the pickle. */
static cz_status find_beside(const cz__torch *t, const char *what,
                             const cz__container_entry **entry)
{
    cz__text name = {0};
    (void)cz__text_append(&name, t->prefix.bytes, t->prefix.count - strlen("data/"));
    cz__text_print(&name, "%s", what);
    *entry = name.failed ? NULL : cz__container_find(t->container, cz__text_get(&name));
    const cz_status status = name.failed ? no_memory(t->path) : CZ_OK;
    cz__text_clear(&name);
    return status;
}

static cz_status refuse_script(const cz__torch *t)
{
    const cz__container_entry *entry;
    CZ_TRY(find_beside(t, "constants.pkl", &entry));
    return entry ? cz__fail(CZ_ERR_UNSUPPORTED,
                            "%s: a TorchScript archive, which holds a program: "
                            "torch.save(torch.jit.load(old).state_dict(), new) writes its values",
                            t->path)
                 : CZ_OK;
}

static cz_status check_version(const cz__torch *t)
{
    char *text = NULL;
    const cz__container_entry *entry;
    CZ_TRY(find_beside(t, "version", &entry));
    if (!entry)
        return CZ_OK;
    CZ_TRY(cz__container_take(t->container, entry, MOST_NOTE, &text));
    const long version = strtol(text, NULL, 10);
    cz__free(text);
    return version >= 1 && version <= NEWEST_VERSION
               ? CZ_OK
               : cz__fail(CZ_ERR_UNSUPPORTED, "%s: version %ld of the form, wanted 1 to %d",
                          t->path, version, NEWEST_VERSION);
}

static cz_status read_byte_order(cz__torch *t)
{
    char *text = NULL;
    const cz__container_entry *entry;
    CZ_TRY(find_beside(t, "byteorder", &entry));
    if (!entry)
        return CZ_OK; /* versions that wrote none had little-endian machines */
    CZ_TRY(cz__container_take(t->container, entry, MOST_NOTE, &text));
    t->big_endian = strcmp(text, "big") == 0;
    const cz_status status =
        t->big_endian || strcmp(text, "little") == 0
            ? CZ_OK
            : cz__fail(CZ_ERR_FORMAT, "%s: its byte order is '%s', wanted 'little' or 'big'",
                       t->path, cz__show(text).text);
    cz__free(text);
    return status;
}

static void take_fingerprint(cz__torch *t, const char *pickle, size_t count)
{
    t->fingerprint = cz__fingerprint(0, pickle, count);
    for (int64_t i = 0; i < t->entry_count; i++) {
        const cz__container_entry *e = &t->entries[i];
        const uint64_t numbers[] = {e->bytes, e->offset, e->crc};
        t->fingerprint = cz__fingerprint(t->fingerprint, e->name, strlen(e->name));
        t->fingerprint = cz__fingerprint(t->fingerprint, numbers, sizeof numbers);
    }
}

static cz_status read_pickle(cz__torch *t, const cz__container_entry *entry)
{
    char *bytes = NULL;
    CZ_TRY(cz__container_take(t->container, entry, MOST_PICKLE, &bytes));
    take_fingerprint(t, bytes, (size_t)entry->bytes);
    const cz_status status =
        cz__pickle_read(&t->pickle, cz__text_get(&t->where), bytes, (size_t)entry->bytes);
    cz__free(bytes);
    return status;
}

static cz_status read_container(cz__torch *t)
{
    const cz__container_entry *pickle;
    t->entries = cz__container_at(t->container, 0);
    t->entry_count = cz__container_count(t->container);
    CZ_TRY(find_pickle(t, &pickle));
    CZ_TRY(refuse_script(t));
    CZ_TRY(check_version(t));
    CZ_TRY(read_byte_order(t));
    return read_pickle(t, pickle);
}

static cz_status open_path(cz__torch *t)
{
    size_t count;
    unsigned char bytes[BEGINNING] = {0};
    CZ_TRY(read_beginning(t->path, bytes, &count));
    CZ_TRY(check_beginning(t->path, bytes, count));
    CZ_TRY(cz__container_open(&t->container, t->path));
    return read_container(t);
}

static cz_status open_part(cz__torch *t, cz__reader *reader, const cz__verified *part)
{
    const size_t count = part->bytes < BEGINNING ? (size_t)part->bytes : BEGINNING;
    unsigned char first[BEGINNING] = {0};
    CZ_TRY(cz__reader_read(reader, part->begin, first, count));
    CZ_TRY(check_beginning(t->path, first, count));
    CZ_TRY(cz__container_open_part(&t->container, t->path, reader, part));
    return read_container(t);
}

static cz_status create(cz__torch **out, const char *path)
{
    *out = cz__calloc(1, sizeof **out);
    if (*out)
        (*out)->path = cz__strdup(path);
    if (*out && (*out)->path)
        return CZ_OK;
    cz__torch_close(out);
    return no_memory(path);
}

cz_status cz__torch_open(cz__torch **out, const char *path)
{
    CZ_TRY(create(out, path));
    const cz_status status = open_path(*out);
    if (status != CZ_OK)
        cz__torch_close(out);
    return status;
}

cz_status cz__torch_open_part(cz__torch **out, const char *path, cz__reader *reader,
                              const cz__verified *part)
{
    CZ_TRY(create(out, path));
    const cz_status status = open_part(*out, reader, part);
    if (status != CZ_OK)
        cz__torch_close(out);
    return status;
}

cz_status cz__torch_open_store(cz__torch **out, const char *path, const char *where,
                               const void *pickle, size_t count, const cz__torch_store *store,
                               void *stored)
{
    cz__torch only = {.store = store, .stored = stored};
    cz_status status = create(out, path);
    if (status != CZ_OK) {
        store->close(&only);
        return status;
    }
    (*out)->store = store;
    (*out)->stored = stored;
    (*out)->fingerprint = cz__fingerprint(0, pickle, count);
    status = cz__text_print(&(*out)->where, "%s", where) ? CZ_OK : no_memory(path);
    if (!status)
        status = cz__pickle_read(&(*out)->pickle, where, pickle, count);
    if (status != CZ_OK)
        cz__torch_close(out);
    return status;
}

cz_status cz__torch_pretend(cz__torch **out, const char *path, const void *pickle, size_t count,
                            const cz__container_entry *entries, int64_t entry_count)
{
    CZ_TRY(create(out, path));
    (*out)->entries = entries;
    (*out)->entry_count = entry_count;
    cz__text_print(&(*out)->prefix, "archive/data/");
    cz__text_print(&(*out)->where, "%s: archive/data.pkl", path);
    const cz_status status =
        cz__pickle_read(&(*out)->pickle, cz__text_get(&(*out)->where), pickle, count);
    if (status != CZ_OK)
        cz__torch_close(out);
    return status;
}

void cz__torch_close(cz__torch **torch)
{
    if (!torch || !*torch)
        return;
    if ((*torch)->store)
        (*torch)->store->close(*torch);
    cz__pickle_destroy(&(*torch)->pickle);
    cz__container_close(&(*torch)->container);
    cz__text_clear(&(*torch)->prefix);
    cz__text_clear(&(*torch)->where);
    cz__free((*torch)->path);
    cz__free(*torch);
    *torch = NULL;
}

static bool is_storage(const cz__torch *t, const cz__container_entry *e)
{
    return strncmp(e->name, cz__text_get(&t->prefix), t->prefix.count) == 0;
}

cz_status cz__torch_verify(const cz__torch *t, int rank, int world_size)
{
    if (t->store)
        return t->store->verify(t, rank, world_size);
    for (int64_t i = 0; i < t->entry_count; i++)
        if (i % world_size != rank)
            cz__container_leave(t->container, &t->entries[i]);
        else if (is_storage(t, &t->entries[i]))
            CZ_TRY(cz__container_verify(t->container, &t->entries[i]));
    return CZ_OK;
}

uint64_t *cz__torch_sums(const cz__torch *t, int64_t *count)
{
    *count = 0;
    if (t->store)
        return t->store->sums(t, count);
    return t->container ? cz__container_sums(t->container, count) : NULL;
}

void cz__torch_trust(const cz__torch *t)
{
    if (t->store)
        t->store->trust(t);
    for (int64_t i = 0; i < t->entry_count; i++)
        if (is_storage(t, &t->entries[i]))
            cz__container_trust(t->container, &t->entries[i]);
}

void cz__torch_measure(const cz__torch *t, int64_t *checksums, uint64_t *bytes)
{
    *checksums = t->entry_count;
    *bytes = 0;
    if (t->store)
        t->store->measure(t, checksums, bytes);
    for (int64_t i = 0; i < t->entry_count; i++) /* they are parts of a file, so they add up */
        *bytes += t->entries[i].unusual ? 0 : t->entries[i].bytes;
}
