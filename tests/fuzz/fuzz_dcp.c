/* SPDX-License-Identifier: MIT */
/* Metadata of a folder of torch.distributed.checkpoint, beside a file of elements that is right.
 * What is accepted has tensors all parts of which can be read, or whose chunks are not what the
 * metadata say. */
#include "fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "../checkpoint/dcp_files.h"
#include "interop/dcp.h"

enum { MOST = 64 };

static char path[32], metadata[64], data[64];
static dcp_folder right = DCP_RIGHT;

static void remove_folder(void)
{
    (void)unlink(metadata);
    (void)unlink(data);
    (void)rmdir(path);
}

static void make_folder(void)
{
    if (metadata[0])
        return;
    snprintf(path, sizeof path, "%s/fuzz-dcp-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    CZ_FUZZ_CHECK(mkdtemp(path));
    snprintf(metadata, sizeof metadata, "%s/.metadata", path);
    snprintf(data, sizeof data, "%s/__0_0.distcp", path);
    CZ_FUZZ_CHECK(dcp_write_parts(&right, path) == CZ_OK);
    CZ_FUZZ_CHECK(atexit(remove_folder) == 0);
}

/* Its first and last elements. */
static void check_tensor(const cz__torch *file, const cz__torch_tensor *t)
{
    char block[MOST * 16];
    const int64_t count = (int64_t)(t->form.end / cz__type_unit(t->form.dtype));
    const int64_t part = count < MOST ? count : MOST;
    for (int i = 0; i < 2; i++) {
        const cz_status status =
            cz__torch_read(file, t, i ? count - part : 0, i ? count : part, block);
        CZ_FUZZ_CHECK(status == CZ_OK || status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    cz__torch *file;
    cz__torch_contents *contents = NULL;
    make_folder();
    const int to = open(metadata, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CZ_FUZZ_CHECK(to >= 0 && write(to, bytes, count) == (ssize_t)count && close(to) == 0);
    cz_status status = cz__dcp_open(&file, path);
    CZ_FUZZ_CHECK((status == CZ_OK) == (file != NULL));
    if (file)
        status = cz__torch_contents_read(&contents, file, NULL);
    CZ_FUZZ_CHECK((status == CZ_OK) == (contents != NULL));
    if (!contents) {
        CZ_FUZZ_CHECK(status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED);
        CZ_FUZZ_CHECK(strncmp(cz_last_error(), path, strlen(path)) == 0);
    }
    for (int64_t i = 0; contents && i < contents->count; i++)
        check_tensor(contents->file, &contents->tensors[i]);
    if (contents)
        (void)cz__torch_verify(contents->file, 0, 1);
    cz__torch_contents_close(&contents);
    return 0;
}

/* ---- seeds ---- */

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    cz__pickling p = {.names = {NULL}};
    make_folder();
    dcp_folder f = right;
    if (number == 1) { /* a list */
        f.parts[3].key = "list";
        f.parts[3].place = 0;
    }
    if (number < 2)
        dcp_put_metadata(&p, &f);
    const size_t count = p.out.count <= room ? p.out.count : 0;
    memcpy(bytes, cz__text_get(&p.out), count);
    cz__text_clear(&p.out);
    return count;
}
