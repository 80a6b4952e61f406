/* SPDX-License-Identifier: MIT */
/* Files as other programs write them: the forms of a checkpoint, views of storages, byte orders;
 * and those that nobody should have written. */
#include "checkpoint/torch_forms.h"

#include "interop/bundle.h"

/* ---- the forms that people write ---- */

TEST(a_model_alone)
{
    form f;
    torch_file file;
    begin_form(&f, &file, NULL);
    add_storages(&file);
    put_model(&file);
    write_form(&f, &file);
    import_everywhere(&f);
    f.rule = "adam"; /* whose state stays as it is */
    import_everywhere(&f);
    remove_folder(f.job.folder);
}

TEST(a_model_under_a_name)
{
    static const char *const names[] = {"model", "model_state_dict", "state_dict"};
    for (int i = 0; i < 3; i++) {
        form f;
        torch_file file;
        begin_form(&f, &file, "sgd");
        file.prefix = "some_name";
        add_storages(&file);
        torch_add(&file, "byteorder", "little", 6);
        torch_add(&file, ".data/serialization_id", "0123456789", 10);
        torch_add(&file, ".format_version", "1", 1);
        torch_add(&file, "version", "3\n", 2);
        torch_op(&file, "}(");
        cz__pickle_put_text(&file.p, "epoch");
        cz__pickle_put_integer(&file.p, 12);
        cz__pickle_put_text(&file.p, names[i]);
        put_model(&file);
        torch_op(&file, "u");
        write_form(&f, &file);
        import_everywhere(&f);
        remove_folder(f.job.folder);
    }
}

/* What else a program keeps: skipped, said, and in nobody's way. */
TEST(foreign_objects_are_skipped_with_a_note)
{
    for (int i = 0; i < 2; i++) {
        form f;
        torch_file file;
        cz__bundle *b;
        begin_form(&f, &file, NULL);
        add_storages(&file);
        torch_op(&file, "}(");
        cz__pickle_put_text(&file.p, "where");
        cz__pickle_put_global(&file.p, "pathlib", "PosixPath");
        torch_op(&file, "(");
        cz__pickle_put_text(&file.p, "a");
        torch_op(&file, "tR");
        cz__pickle_put_text(&file.p, "seed");
        (void)cz__text_append(&file.p.out, "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0", 11);
        if (i == 0)
            cz__pickle_put_text(&file.p, "model");
        if (i == 0)
            put_model(&file);
        else { /* a state dictionary itself */
            torch_named(&file, "w", &w_view);
            torch_named(&file, "b", &b_view);
            torch_named(&file, "n", &n_view);
        }
        torch_op(&file, "u");
        write_form(&f, &file);
        import_everywhere(&f);
        CZ_CHECK(cz__bundle_open(&b, f.job.path, NULL));
        assert_non_null(strstr(cz__bundle_notes(b), "(pathlib.PosixPath, an integer of more"));
        assert_non_null(strstr(cz__bundle_notes(b), "nothing was executed"));
        cz__bundle_close(&b);
        remove_folder(f.job.folder);
    }
}

TEST(a_model_and_its_optimizer)
{
    form f;
    torch_file file;
    begin_form(&f, &file, "adam");
    add_storages(&file);
    torch_op(&file, "}(");
    cz__pickle_put_text(&file.p, "model_state_dict");
    put_model(&file);
    cz__pickle_put_text(&file.p, "optimizer_state_dict");
    put_optimizer(&file);
    torch_op(&file, "u");
    write_form(&f, &file);
    f.state = true;
    import_everywhere(&f);
    f.rule = "adamw"; /* whose groups have the same values */
    import_everywhere(&f);
    f.rule = "sgd";
    char why[256];
    assert_int_equal(cz_test_run_ranks(2, import_form, &f, why), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(why, "rule is sgd, in the checkpoint adam"));
    remove_folder(f.job.folder);
}

TEST(an_optimizer_alone)
{
    form f;
    torch_file file;
    begin_form(&f, &file, "adam");
    add_storages(&file);
    put_optimizer(&file);
    write_form(&f, &file);
    f.state = true;
    f.values = false;
    import_everywhere(&f);
    remove_folder(f.job.folder);
}

/* A program with several, as Lightning writes even one: what is not read is said. */
TEST(a_list_of_optimizers)
{
    form f;
    torch_file file;
    begin_form(&f, &file, "adam");
    add_storages(&file);
    torch_op(&file, "}(");
    cz__pickle_put_text(&file.p, "state_dict");
    put_model(&file);
    cz__pickle_put_text(&file.p, "optimizer_states");
    torch_op(&file, "](");
    put_optimizer(&file);
    torch_op(&file, "eu");
    write_form(&f, &file);
    f.note = "'optimizer_states' is a list, wanted the dictionary of one optimizer";
    import_everywhere(&f);
    remove_folder(f.job.folder);
}

/* Each allocation that fails is said, and nothing is left. */
TEST(memory)
{
    form f;
    torch_file file;
    begin_form(&f, &file, NULL);
    add_storages(&file);
    torch_op(&file, "}(");
    cz__pickle_put_text(&file.p, "state_dict");
    put_model(&file);
    cz__pickle_put_text(&file.p, "optimizer");
    put_optimizer(&file);
    torch_op(&file, "u");
    write_form(&f, &file);
    const int64_t before = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz__bundle *b;
        cz_test_fail_allocation(n);
        const cz_status status = cz__bundle_open(&b, f.job.path, NULL);
        const bool failed = cz_test_allocation_reset();
        assert_true(failed || strstr(cz__bundle_notes(b), "Adam or AdamW"));
        cz__bundle_close(&b);
        assert_int_equal(cz_test_allocations_held(), before);
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        if (!failed)
            break;
        assert_true(n < 1000);
    }
    remove_folder(f.job.folder);
}

/* ---- forms that are refused ---- */

static void refuse_form(const char *opcodes, size_t count, cz_status status, const char *says)
{
    form f;
    torch_file file = {.count = 0};
    begin_form(&f, &file, NULL);
    cz__text_clear(&file.p.out);
    (void)cz__text_append(&file.p.out, opcodes, count);
    torch_write(&file, f.job.path);
    expect_import(&f.job, 2, status, "model.pt", says);
    remove_folder(f.job.folder);
}

#define REFUSE(literal, status, says) refuse_form(literal, sizeof(literal) - 1, status, says)

TEST(forms_that_are_refused)
{
    REFUSE("\x80\2K\1.", CZ_ERR_FORMAT, "an integer, wanted a dictionary");
    REFUSE("\x80\2}(X\5\0\0\0epochK\1X\3\0\0\0net}u.", CZ_ERR_FORMAT, "'epoch', 'net'");
    REFUSE("\x80\2}(X\5\0\0\0model}X\x0a\0\0\0state_dict}u.", CZ_ERR_FORMAT, "which of them");
    REFUSE("\x80\2}(X\5\0\0\0model}X\x09\0\0\0optimizer}u.", CZ_ERR_FORMAT, "'param_groups'");
    REFUSE("\x80\2}(X\5\0\0\0model}(X\1\0\0\0wK\1uu.", CZ_ERR_FORMAT, "'w' is an integer");
    REFUSE("\x80\2}(X\5\0\0\0model}(K\1K\1uu.", CZ_ERR_FORMAT, "an integer as the name");
    REFUSE("\x80\2}(X\5\0\0\0state}X\x0c\0\0\0param_groups]u.", CZ_ERR_FORMAT,
           "no parameter groups");
    REFUSE("\x80\2}(X\5\0\0\0state}X\x0c\0\0\0param_groups](}eu.", CZ_ERR_FORMAT,
           "no list of params");
    REFUSE("\x80\2}(X\5\0\0\0state}X\x0c\0\0\0param_groups](}(X\6\0\0\0params](K\1eueu.",
           CZ_ERR_FORMAT, "which is which");
    REFUSE("\x80\2}(X\5\0\0\0model}X\5\0\0\0czero}u.", CZ_ERR_FORMAT, "'czero'");
    REFUSE("\x80\2cposix\nsystem\n.", CZ_ERR_FORMAT, "posix.system");
}

/* ---- containers that are refused ---- */

static void write_entries(form *f, torch_file *file, const char *name, const char *bytes)
{
    begin_form(f, file, NULL);
    add_storages(file);
    if (name)
        torch_add(file, name, bytes, strlen(bytes));
    put_model(file);
    write_form(f, file);
}

TEST(containers_that_are_refused)
{
    static const struct {
        const char *name, *bytes;
        cz_status status;
        const char *says;
    } cases[] = {
        {"byteorder", "middle", CZ_ERR_FORMAT, "'middle'"},
        {"version", "11\n", CZ_ERR_UNSUPPORTED, "version 11"},
        {"version", "x", CZ_ERR_UNSUPPORTED, "version 0"},
        {"constants.pkl", "x", CZ_ERR_UNSUPPORTED, "torch.jit.load(old).state_dict()"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        form f;
        torch_file file;
        write_entries(&f, &file, cases[i].name, cases[i].bytes);
        expect_import(&f.job, 2, cases[i].status, "model.pt", cases[i].says);
        remove_folder(f.job.folder);
    }
}

/* What the file said is overwritten where it stands last: in the central directory. */
static void forge(const form *f, const char *name, size_t offset, const void *bytes, size_t count)
{
    size_t size;
    char *all = read_whole(f->job.path, &size), *at = NULL, *next = all;
    while ((next = memmem(next, size - (size_t)(next - all), name, strlen(name))))
        at = next++;
    assert_non_null(at);
    memcpy(at - 46 + offset, bytes, count); /* the name is behind 46 bytes of its header */
    write_whole(f->job.path, all, size);
    free(all);
}

TEST(directories_that_lie)
{
    static const struct {
        const char *name;
        size_t offset;
        const char *bytes;
        size_t count;
        const char *says;
    } lies[] = {
        {"archive/data/0", 10, "\x08", 1, "compressed"},
        {"archive/data/0", 8, "\x01", 1, "encrypted"},
        {"archive/data/0", 16, "abcd", 4, "CRC"},
        {"archive/data.pkl", 16, "abcd", 4, "CRC"},
        {"archive/data/0", 24, "\x31", 1, ""}, /* another size */
        {"archive/data/0", 20, "\xff\xff\xff\x7f", 4, ""},
        {"archive/data/1", 42, "\0\0\0\0", 4, ""}, /* the bytes of another entry */
        {"archive/data/1", 42, "\xff\xff\xff\x7f", 4, ""},
        {"archive/data/1", 59, "0", 1, "twice"}, /* its name */
        {"archive/data.pkl", 54, "x", 1, "NAME/data.pkl"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        form f;
        torch_file file;
        write_entries(&f, &file, NULL, NULL);
        forge(&f, lies[i].name, lies[i].offset, lies[i].bytes, lies[i].count);
        expect_import(&f.job, 2, CZ_ERR_FORMAT, "model.pt", lies[i].says);
        remove_folder(f.job.folder);
    }
}

/* Cut off anywhere, and with any byte another one: refused, or as it was. */
TEST(files_that_are_damaged)
{
    form f;
    torch_file file;
    size_t count;
    cz__bundle *b;
    write_entries(&f, &file, "version", "3\n");
    char *all = read_whole(f.job.path, &count);
    for (size_t n = 0; n < count; n += 1 + n / 64) {
        write_whole(f.job.path, all, n);
        assert_int_not_equal(cz__bundle_open(&b, f.job.path, NULL), CZ_OK);
        assert_null(b);
    }
    for (size_t n = 0; n < count; n += n % 7 ? 3 : 1) {
        all[n] = (char)(all[n] ^ 0xff);
        write_whole(f.job.path, all, count);
        if (cz__bundle_open(&b, f.job.path, NULL) == CZ_OK)
            (void)cz__bundle_verify(b, 0, 1);
        cz__bundle_close(&b);
        all[n] = (char)(all[n] ^ 0xff);
    }
    free(all);
    remove_folder(f.job.folder);
}

TEST(files_of_older_versions)
{
    job j;
    begin(&j, "old.pt");
    write_whole(j.path, "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M\xe9\3.", 20);
    expect_import(&j, 3, CZ_ERR_UNSUPPORTED, "old.pt", "torch.save(torch.load(old), new)");
    remove_folder(j.folder);
}
