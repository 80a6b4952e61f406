/* SPDX-License-Identifier: MIT */
/* Folders of torch.distributed.checkpoint: there and back on any number of ranks, tensors put
 * together from their chunks, and folders that nobody should have made. */
#include "checkpoint/torch_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/half.h"
#include "checkpoint/dcp_files.h"
#include "interop/bundle.h"

static const int worlds[] = {1, 2, 3, 5};
enum { WORLDS = 4 };

/* ---- there and back ---- */

/* The same folder again and again: what is replaced goes, and nothing else stays. */
TEST(there_and_back_whoever_writes_and_reads)
{
    job j;
    begin(&j, "all.dcp");
    for (int w = 0; w < WORLDS; w++) {
        assert_ranks_ok(worlds[w], there_and_back, &j);
        assert_int_equal(count_files(j.folder), 1);
        assert_int_equal(count_files(j.path), 1); /* and .metadata */
    }
    remove_folder(j.folder);
}

static cz_status write_some(cz_group *group, void *context)
{
    return write_as(group, context, &evenly);
}

TEST(a_folder_with_another_checkpoint_in_it_is_left_alone)
{
    job j;
    char other[EXPORT_PATH + 20];
    begin(&j, "all.dcp");
    CZ_CHECK(mkdir(j.path, 0700) == 0 ? CZ_OK : CZ_ERR_IO);
    snprintf(other, sizeof other, "%s/index.json", j.path);
    CZ_CHECK(cz__file_write(other, "{}", 2));
    char why[256] = "";
    assert_int_not_equal(cz_test_run_ranks(2, write_some, &j, why), CZ_OK);
    assert_non_null(strstr(why, "another checkpoint"));
    assert_int_equal(count_files(j.path), 1);
    assert_int_equal(count_files(j.folder), 1);
    remove_folder(j.folder);
}

/* ---- chunks ---- */

static void make(char folder[FOLDER_BYTES], dcp_folder *f)
{
    make_quick_folder(folder);
    CZ_CHECK(dcp_write_parts(f, folder));
    CZ_CHECK(dcp_write_metadata(f, folder));
}

TEST(any_part_of_a_tensor_is_put_together_from_its_chunks)
{
    char folder[FOLDER_BYTES];
    dcp_folder f = DCP_RIGHT;
    cz__bundle *b;
    make(folder, &f);
    CZ_CHECK(cz__bundle_open(&b, folder, NULL));
    assert_int_equal(b->tensor_count, 2);
    CZ_CHECK(cz__bundle_verify(b, 0, 1));
    for (int64_t begin = 0; begin <= 12; begin++)
        for (int64_t end = begin; end <= 12; end++) {
            float got[14];
            for (int i = 0; i < 14; i++)
                got[i] = -1;
            CZ_CHECK(cz__bundle_read(b, "w", begin, end, got + 1));
            for (int64_t i = 0; i < 14; i++) {
                const bool wanted = i > 0 && i <= end - begin;
                assert_true(got[i] == (wanted ? (float)(begin + i - 1) : -1.0F));
            }
        }
    cz__bundle_close(&b);
    remove_folder(folder);
}

/* torch 2.15 saved numbers from 0 on: [7, 5] cut by rows, with an optimizer's state, and [2, 4] in
 * bf16 by columns. */
TEST(a_folder_of_torch_that_three_ranks_wrote)
{
    static const char *const rows[] = {"w", "optimizer/exp_avg/w", "optimizer/exp_avg_sq/w"};
    cz__bundle *b;
    uint16_t columns[8];
    CZ_CHECK(cz__bundle_open(&b, CZ_TEST_GOLDEN_DIR "/fsdp2.dcp", NULL));
    assert_int_equal(b->tensor_count, 4);
    CZ_CHECK(cz__bundle_verify(b, 0, 1));
    for (int k = 0; k < 3; k++) {
        float got[35] = {0};
        CZ_CHECK(cz__bundle_read(b, rows[k], 0, 35, got));
        for (int i = 0; i < 35; i++)
            assert_true(got[i] == (float)i / (float)(1 << k));
    }
    CZ_CHECK(cz__bundle_read(b, "c", 0, 8, columns));
    for (int i = 0; i < 8; i++)
        assert_true(cz__f32_from_bf16(columns[i]) == (float)i);
    cz__bundle_close(&b);
}

/* ---- wrong ones ---- */

static void refuse_folder(const char *folder, const dcp_folder *f, cz_status wanted,
                          const char *says)
{
    cz__bundle *b;
    CZ_CHECK(dcp_write_metadata(f, folder));
    cz_status status = cz__bundle_open(&b, folder, NULL);
    if (status == CZ_OK)
        status = cz__bundle_verify(b, 0, 1);
    cz__bundle_close(&b);
    if (status != wanted || !strstr(cz_last_error(), says))
        fail_msg("status %d: %s; wanted %d, '%s'", status, cz_last_error(), wanted, says);
}

TEST(chunks_that_do_not_fill_a_tensor)
{
    static const struct {
        int chunks, part;
        int64_t offsets[2], sizes[2];
        const char *says;
    } cases[] = {
        {2, 0, {0, 0}, {2, 4}, "do not fill it: they have 10 elements"},
        {3, 1, {2, 0}, {1, 3}, "do not fill it: they have 13 elements"},
        {3, 1, {1, 0}, {1, 2}, "do not fill it: they have 12 elements"},
        {3, 1, {3, 0}, {1, 2}, "a chunk has 1 from 3 on in dimension 0, the tensor 3"},
        {3, 1, {2, INT64_MAX}, {1, 2}, "in dimension 1"},
        {3, 1, {2, 0}, {1, INT64_MAX}, "in dimension 1"},
        {3, 0, {0, 0}, {-1, 4}, "a chunk has not a place and a size"},
        {3, 2, {2, 0}, {1, 2}, "stored twice"},
    };
    char folder[FOLDER_BYTES];
    dcp_folder right = DCP_RIGHT;
    make(folder, &right);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_folder f = right;
        f.chunks = cases[i].chunks;
        memcpy(f.parts[cases[i].part].offsets, cases[i].offsets, sizeof cases[i].offsets);
        memcpy(f.parts[cases[i].part].sizes, cases[i].sizes, sizeof cases[i].sizes);
        refuse_folder(folder, &f, CZ_ERR_FORMAT, cases[i].says);
    }
    remove_folder(folder);
}

TEST(files_elsewhere)
{
    static const char *const names[] = {
        "../__0_0.distcp", "/etc/passwd", "a/b", ".metadata", "..", "", "a\nb"};
    char folder[FOLDER_BYTES], link[FOLDER_BYTES + 20];
    dcp_folder right = DCP_RIGHT;
    make(folder, &right);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dcp_folder f = right;
        f.parts[1].file = names[i];
        refuse_folder(folder, &f, CZ_ERR_FORMAT, "wanted the name of a file in the folder");
    }
    dcp_folder f = right;
    f.parts[1].file = "__1_0.distcp";
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "is not there, and the metadata name it");
    snprintf(link, sizeof link, "%s/__1_0.distcp", folder);
    assert_int_equal(symlink("__0_0.distcp", link), 0);
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "is a link, wanted a file in the folder");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(mkfifo(link, 0600), 0);
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "is no file, wanted a file in the folder");
    remove_folder(folder);
}

TEST(places_in_files)
{
    char folder[FOLDER_BYTES];
    dcp_folder right = DCP_RIGHT;
    make(folder, &right);
    dcp_folder f = right;
    f.parts[4].begin = INT64_MAX;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "the file has");
    f.parts[4] = right.parts[4];
    f.parts[4].bytes += 1;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "the file has");
    f = right;
    f.parts[1].begin = -1;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "no file, place and length");
    f = right;
    f.parts[1].bytes = 4;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "a chunk of 8 bytes is stored in 4");
    f = right;
    f.parts[1].bytes += 1;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "share bytes");
    f = right;
    f.parts[1].begin = f.parts[2].begin;
    f.parts[1].bytes = f.parts[2].bytes;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "share bytes");
    f = right;
    f.parts[1].begin += 8;
    f.parts[1].bytes -= 8;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "__0_0.distcp (from byte");
    f = right; /* the object's, which is no tensor */
    f.parts[1].begin = right.parts[4].begin;
    f.parts[1].bytes = right.parts[4].bytes;
    f.parts[4].begin = right.parts[1].begin;
    f.parts[4].bytes = right.parts[1].bytes;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "wanted a tensor");
    f = right; /* another chunk's */
    f.parts[3].begin = right.parts[1].begin;
    f.parts[3].bytes = right.parts[1].bytes;
    f.parts[1].begin = right.parts[3].begin;
    f.parts[1].bytes = right.parts[3].bytes;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "is not the chunk of tensor");
    f = right;
    f.type = "int32";
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "is not the chunk of tensor");
    remove_folder(folder);
}

TEST(metadata_of_another_kind)
{
    char folder[FOLDER_BYTES], path[FOLDER_BYTES + 20];
    dcp_folder right = DCP_RIGHT;
    cz__bundle *b;
    make(folder, &right);
    dcp_folder f = right;
    f.attack = "os";
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "os.system, which no data have: refused, nothing was");
    f = right;
    f.class_name = "MetadataIndex";
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "is MetadataIndex, wanted TensorStorageMetadata");
    f.class_name = "Unknown";
    refuse_folder(folder, &f, CZ_ERR_FORMAT,
                  "is an object of Python's, wanted TensorStorageMetadata");
    f = right;
    f.type = "complex32";
    refuse_folder(folder, &f, CZ_ERR_UNSUPPORTED, "torch.complex32");
    f = right;
    f.transformed = true;
    refuse_folder(folder, &f, CZ_ERR_UNSUPPORTED, "saved through an extension");
    f = right;
    f.twice = true;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "'model.w' is stored twice");
    f = right;
    f.parts[3].inner = "w";
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "have one place in the dictionary");
    f = right;
    f.parts[3].inner = NULL;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "have one place in the dictionary");
    f = right;
    f.parts[3].place = 0;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "which is a list for one of them");
    f.parts[3].key = "list";
    f.parts[3].place = INT64_MAX;
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "in a list that has no element 0");
    snprintf(path, sizeof path, "%s/.metadata", folder);
    CZ_CHECK(cz__file_write(path, "\x80\x02}.", 4));
    assert_int_equal(cz__bundle_open(&b, folder, NULL), CZ_ERR_FORMAT);
    assert_non_null(strstr(cz_last_error(), "it is not what torch.distributed.checkpoint writes"));
    remove_folder(folder);
}

TEST(a_byte_of_a_chunk_that_changed)
{
    char folder[FOLDER_BYTES], path[FOLDER_BYTES + 20];
    dcp_folder f = DCP_RIGHT;
    make(folder, &f);
    snprintf(path, sizeof path, "%s/__0_0.distcp", folder);
    const float other = 99;
    const int file = open(path, O_RDWR);
    cz__reader *reader;
    cz__container *c;
    CZ_CHECK(cz__reader_open(&reader, path));
    const cz__verified part = {.begin = (uint64_t)f.parts[1].begin,
                               .bytes = (uint64_t)f.parts[1].bytes};
    CZ_CHECK(cz__container_open_part(&c, "part", reader, &part));
    const off_t at = (off_t)cz__container_find(c, "archive/data/0")->offset;
    assert_true(at > f.parts[1].begin && at < f.parts[2].begin);
    cz__container_close(&c);
    cz__reader_close(&reader);
    assert_int_equal(pwrite(file, &other, sizeof other, at), sizeof other);
    close(file);
    refuse_folder(folder, &f, CZ_ERR_FORMAT, "its bytes are not those of its CRC");
    remove_folder(folder);
}

/* All that can fail for want of memory fails so, and leaves nothing. */
TEST(allocations_that_fail)
{
    char folder[FOLDER_BYTES];
    dcp_folder f = DCP_RIGHT;
    cz_status status = CZ_ERR_MEMORY;
    make(folder, &f);
    for (int64_t n = 1; status != CZ_OK; n++) {
        cz__bundle *b;
        float got[12];
        cz_test_fail_allocation(n);
        status = cz__bundle_open(&b, folder, NULL);
        if (status == CZ_OK)
            status = cz__bundle_read(b, "w", 0, 12, got);
        (void)cz_test_allocation_reset();
        cz__bundle_close(&b);
        if (status != CZ_OK && status != CZ_ERR_MEMORY)
            fail_msg("allocation %d: status %d: %s", (int)n, status, cz_last_error());
        assert_true(n < 10000);
    }
    remove_folder(folder);
}
