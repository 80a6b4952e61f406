/* SPDX-License-Identifier: MIT */
/* Pickles: what is read, and that everything else is refused by its name; what is written is read
 * again. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "io/pickle.h"
#include "support/cz_test.h"

static cz__pickle *read_bytes(const char *bytes, size_t count)
{
    cz__pickle *p;
    if (cz__pickle_read(&p, "FILE", bytes, count) != CZ_OK)
        fail_msg("%s", cz_last_error());
    return p;
}

#define READ(literal) read_bytes(literal, sizeof(literal) - 1)

static const cz__pickle_value *root(const cz__pickle *p)
{
    return &p->values[p->root];
}

/* ---- values ---- */

TEST(integers_in_every_encoding)
{
    static const struct {
        const char *bytes;
        size_t count;
        int64_t value;
    } cases[] = {{"\x80\2K\xff.", 5, 255},
                 {"\x80\2M\x34\x12.", 6, 0x1234},
                 {"\x80\2J\xfe\xff\xff\xff.", 8, -2},
                 {"\x80\2\x8a\0.", 5, 0},
                 {"\x80\2\x8a\1\x80.", 6, -128},
                 {"\x80\2\x8a\2\x80\0.", 7, 128},
                 {"\x80\4\x8a\x08\1\0\0\0\0\0\0\x80.", 13, INT64_MIN + 1},
                 {"\x80\3\x8b\1\0\0\0\7.", 9, 7},
                 {"\x80\2\x88.", 4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cz__pickle *p = read_bytes(cases[i].bytes, cases[i].count);
        assert_int_equal(root(p)->integer, cases[i].value);
        cz__pickle_destroy(&p);
    }
}

TEST(what_is_written_is_read)
{
    static const int64_t integers[] = {0,         255,       256,       65535,
                                       65536,     -1,        INT32_MIN, INT32_MAX,
                                       INT64_MIN, INT64_MAX, 1 << 24,   INT64_C(1) << 31};
    const int count = sizeof integers / sizeof *integers;
    cz__pickling w = {0};
    cz__pickle_begin(&w);
    cz__pickle_op(&w, CZ__PICKLE_OP_MARK);
    for (int i = 0; i < count; i++)
        cz__pickle_put_integer(&w, integers[i]);
    cz__pickle_put_real(&w, -0x1.8p-1000);
    cz__pickle_put_text(&w, "\xc3\xa9\n");
    cz__pickle_put_none(&w);
    for (int i = 0; i < 2; i++)
        cz__pickle_put_global(&w, "collections", "OrderedDict");
    cz__pickle_op(&w, CZ__PICKLE_OP_TUPLE);
    cz__pickle_end(&w);
    cz__pickle *p = read_bytes(w.out.bytes, w.out.count);
    assert_int_equal(root(p)->count, count + 5);
    for (int i = 0; i < count; i++)
        assert_int_equal(cz__pickle_item(p, root(p), i)->integer, integers[i]);
    assert_true(cz__pickle_item(p, root(p), count)->real == -0x1.8p-1000);
    assert_true(cz__pickle_is_text(cz__pickle_item(p, root(p), count + 1), "\xc3\xa9\n"));
    assert_int_equal(cz__pickle_item(p, root(p), count + 2)->kind, CZ__PICKLE_NONE);
    assert_ptr_equal(cz__pickle_item(p, root(p), count + 3)->global,
                     cz__pickle_item(p, root(p), count + 4)->global);
    cz__pickle_destroy(&p);
    cz__text_clear(&w.out);
}

/* {"a": [1, 2], 3: ("b",)} in protocol 2 with a memo, and in protocol 4. */
TEST(containers)
{
    cz__pickle *files[] = {
        READ("\x80\2}q\0(X\1\0\0\0aq\1]q\2(K\1K\2eK\3X\1\0\0\0b\x85q\3u."),
        READ("\x80\4\x95\x19\0\0\0\0\0\0\0}\x94(\x8c\1a\x94]\x94(K\1K\2eK\3\x8c\1b\x94\x85\x94u.")};
    for (int i = 0; i < 2; i++) {
        const cz__pickle *p = files[i];
        const cz__pickle_value *list = cz__pickle_get(p, root(p), "a");
        assert_int_equal(cz__pickle_dict_count(root(p)), 2);
        assert_int_equal(list->count, 2);
        assert_int_equal(cz__pickle_item(p, list, 1)->integer, 2);
        assert_true(cz__pickle_is_text(cz__pickle_item(p, cz__pickle_item(p, root(p), 3), 0), "b"));
        assert_null(cz__pickle_get(p, root(p), "b"));
        cz__pickle_destroy(&files[i]);
    }
}

/* An OrderedDict with an attribute, a tuple of a torch.Size, a parameter. */
TEST(calls_stand_for_what_they_make)
{
    cz__pickle *p = READ("\x80\2"
                         "ccollections\nOrderedDict\n)R(X\1\0\0\0ac"
                         "torch\nSize\n(K\2K\3t\x85Ru}X\1\0\0\0mNsb.");
    assert_int_equal(root(p)->kind, CZ__PICKLE_DICT);
    assert_int_equal(cz__pickle_get(p, root(p), "a")->count, 2);
    cz__pickle_destroy(&p);
    p = READ("\x80\2"
             "ctorch._utils\n_rebuild_parameter\n("
             "ctorch._utils\n_rebuild_tensor_v2\n(K\1tR\x88NtR.");
    assert_int_equal(root(p)->kind, CZ__PICKLE_CALL);
    assert_int_equal(cz__pickle_item(p, root(p), 0)->global->role, CZ__PICKLE_REBUILD);
    cz__pickle_destroy(&p);
}

/* A list in itself is read, and freed. */
TEST(a_list_in_itself)
{
    cz__pickle *p = READ("\x80\2]q\0h\0a.");
    assert_ptr_equal(cz__pickle_item(p, root(p), 0), root(p));
    cz__pickle_destroy(&p);
}

/* ---- what is refused ---- */

typedef struct bad {
    const char *bytes;
    size_t count;
    const char *says;
} bad;
#define BAD(literal, says)                                                                         \
    {                                                                                              \
        literal, sizeof(literal) - 1, says                                                         \
    }

static void refuse(const bad *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cz__pickle *p;
        const cz_status status = cz__pickle_read(&p, "FILE", cases[i].bytes, cases[i].count);
        if (status != CZ_ERR_FORMAT && status != CZ_ERR_UNSUPPORTED)
            fail_msg("case %zu: status %d, %s", i, (int)status, cases[i].says);
        assert_null(p);
        if (!strstr(cz_last_error(), cases[i].says) || strncmp(cz_last_error(), "FILE: ", 6) != 0)
            fail_msg("case %zu: no \"%s\" in: %s", i, cases[i].says, cz_last_error());
    }
}

/* Programs that would run something. */
TEST(attacks)
{
    static const bad cases[] = {
        BAD("\x80\2cposix\nsystem\nX\4\0\0\0true\x85R.", "posix.system"),
        BAD("\x80\2cos\nsystem\nX\4\0\0\0true\x85R.", "os.system"),
        BAD("\x80\4\x8c\5posix\x8c\6system\x93\x8c\4true\x85R.", "posix.system"),
        BAD("\x80\2c__builtin__\neval\nX\1\0\0\0001\x85R.", "__builtin__.eval"),
        BAD("\x80\2cbuiltins\nexec\nX\1\0\0\0001\x85R.", "builtins.exec"),
        BAD("\x80\2csubprocess\nPopen\n.", "subprocess.Popen"),
        BAD("\x80\2cwebbrowser\nopen\n.", "webbrowser.open"),
        BAD("\x80\2crunpy\n_run_code\n.", "runpy._run_code"),
        BAD("\x80\2ctorch\nload\n.", "torch.load"),
        BAD("\x80\2ctorch.hub\nload\n.", "torch.hub.load"),
        BAD("\x80\2(X\4\0\0\0trueiposix\nsystem\n.", "INST"),
        BAD("\x80\2(cposix\nsystem\nX\4\0\0\0trueo.", "posix.system"),
        BAD("\x80\2(K\1o.", "OBJ"),
        BAD("\x80\2\x82\1.", "EXT1"),
        BAD("\x80\2\x83\1\0.", "EXT2"),
        BAD("\x80\2\x84\1\0\0\0.", "EXT4"),
        BAD("\x80\2Pid\n.", "PERSID"),
        BAD("\x80\4)}\x92.", "a call without"),
        BAD("\x80\5\x97.", "NEXT_BUFFER"),
        BAD("\x80\2K\1K\0012.", "DUP"),
        BAD("\x80\2I1\n.", "INT"),
        BAD("\x80\2S'a'\n.", "STRING"),
        BAD("\x80\2(lp0\n.", "LIST"),
        BAD("\x80\2cposix\x1b[2J\nsystem\n.", "posix?[2J.system"),
        /* a name that may be there, and may not be called */
        BAD("\x80\2ctorch\nFloatStorage\nK\1\x85R.", "torch.FloatStorage is called"),
        BAD("\x80\2ctorch\nTensor\n)\x81.", "torch.Tensor is called"),
        BAD("\x80\2X\1\0\0\0a)R.", "a text is called"),
        BAD("\x80\2ccollections\nOrderedDict\n]R.", "a list for its arguments"),
        BAD("\x80\2ccollections\nOrderedDict\n(K\1K\2tR.", "2 arguments"),
        BAD("\x80\2ctorch._tensor\n_rebuild_from_type_v2\n("
            "ccollections\nOrderedDict\nctorch\nTensor\n)NtR.",
            "4 arguments"),
        BAD("\x80\2K\1}b.", "BUILD of an integer"),
    };
    refuse(cases, sizeof cases / sizeof *cases);
}

/* Things that no state dictionary needs: what they are of is known, and nothing of them was
 * done. */
TEST(foreign_objects_are_kept_and_never_executed)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *module, *name;
        bool note;
    } cases[] = {
#define OPAQUE(literal, module, name, note) {literal, sizeof(literal) - 1, module, name, note}
        OPAQUE("\x80\2cpathlib\nPosixPath\nX\1\0\0\0a\x85R.", "pathlib", "PosixPath", false),
        OPAQUE("\x80\4\x8c\7pathlib\x8c\x09PosixPath\x93\x8c\1a\x85R.", "pathlib", "PosixPath",
               false),
        OPAQUE("\x80\2cargparse\nNamespace\n)\x81}X\2\0\0\0lrK\1sb.", "argparse", "Namespace",
               false),
        OPAQUE("\x80\2cmine\nColor\nK\1\x85R.", "mine", "Color", false),
        OPAQUE("\x80\4\x8f(K\1K\2\x90.", "builtins", "set", false),
        OPAQUE("\x80\4(K\1K\2\x91.", "builtins", "frozenset", false),
        OPAQUE("\x80\4cmine\nNamed\n)}\x92.", "mine", "Named", false),
        OPAQUE("\x80\2\x8a\x09\0\0\0\0\0\0\0\x80\0.", "", "an integer of more than 64 bits", false),
        OPAQUE("\x80\2ctorch._utils\n_rebuild_sparse_tensor\n)R.", "torch._utils",
               "_rebuild_sparse_tensor", true),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cz__pickle *p = read_bytes(cases[i].bytes, cases[i].count);
        assert_int_equal(root(p)->kind, CZ__PICKLE_OPAQUE);
        assert_string_equal(root(p)->module, cases[i].module);
        assert_string_equal(root(p)->name, cases[i].name);
        assert_int_equal(root(p)->note != NULL, cases[i].note);
        cz__pickle_destroy(&p);
    }
    /* a list and a dictionary of the program's own class, with attributes; keys of any kind; a
     * default */
    static const char own[] = "\x80\2}(Ncmine\nDict\n)\x81(X\1\0\0\0aK\1u}b"
                              "K\1\x85"
                              "cmine\nList\n)\x81(K\1K\2e}b"
                              "G?\xf0\0\0\0\0\0\0ccollections\ndefaultdict\ncbuiltins\nlist\n\x85R"
                              "X\1\0\0\0xK\1su.";
    cz__pickle *p = READ(own);
    assert_int_equal(cz__pickle_dict_count(root(p)), 3);
    assert_int_equal(cz__pickle_get(p, cz__pickle_item(p, root(p), 1), "a")->integer, 1);
    assert_int_equal(cz__pickle_item(p, root(p), 3)->kind, CZ__PICKLE_LIST);
    assert_int_equal(cz__pickle_item(p, root(p), 3)->count, 2);
    assert_int_equal(cz__pickle_get(p, cz__pickle_item(p, root(p), 5), "x")->integer, 1);
    cz__text list = {0};
    assert_true(cz__pickle_list_opaque(p, &list));
    assert_string_equal(list.bytes, "mine.Dict, mine.List, builtins.list");
    cz__text_clear(&list);
    cz__pickle_destroy(&p);
    /* what Python writes for a tuple that is in itself, and bytes that can change */
    p = READ("\x80\2]q\1(h\1K\1tq\2a0h\2.");
    assert_int_equal(root(p)->kind, CZ__PICKLE_TUPLE);
    cz__pickle_destroy(&p);
    p = READ("\x80\2X\2\0\0\0a\0.");
    assert_int_equal(root(p)->kind, CZ__PICKLE_BYTES);
    cz__pickle_destroy(&p);
    p = READ("\x80\5\x96\1\0\0\0\0\0\0\0a.");
    assert_int_equal(root(p)->kind, CZ__PICKLE_BYTES);
    cz__pickle_destroy(&p);
}

#define NUMPY(type, order)                                                                         \
    "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0" type                                \
    "\x89\x88\x87R(K\3X\1\0\0\0" order "Ntb"

/* As programs have them for rates and epochs; in protocol 2 bytes are a text of latin-1. */
TEST(numbers_of_numpy)
{
    cz__pickle *p = READ("\x80\3" NUMPY("f8", "<") "C\x08\0\0\0\0\0\0\xe0?\x86R.");
    assert_int_equal(root(p)->kind, CZ__PICKLE_REAL);
    assert_true(root(p)->real == 0.5);
    cz__pickle_destroy(&p);
    p = READ("\x80\2" NUMPY("f8",
                            "<") "c_codecs\nencode\nX\x09\0\0\0\0\0\0\0\0\0\xc3\xa0?X\6\0\0\0latin1"
                                 "\x86R\x86R.");
    assert_int_equal(root(p)->kind, CZ__PICKLE_REAL);
    assert_true(root(p)->real == 0.5);
    cz__pickle_destroy(&p);
    p = READ("\x80\3" NUMPY("i8", "<") "C\x08\xfe\xff\xff\xff\xff\xff\xff\xff\x86R.");
    assert_int_equal(root(p)->integer, -2);
    cz__pickle_destroy(&p);
    p = READ("\x80\3" NUMPY("f4", "<") "C\4\0\0\0?\x86R.");
    assert_true(root(p)->real == 0.5);
    cz__pickle_destroy(&p);
    p = READ("\x80\3" NUMPY("f8", ">") "C\x08?\xe0\0\0\0\0\0\0\x86R."); /* of the other order */
    assert_int_equal(root(p)->kind, CZ__PICKLE_OPAQUE);
    cz__pickle_destroy(&p);
    p = READ("\x80\3" NUMPY("f8", "<") "C\7\0\0\0\0\0\0?\x86R."); /* a byte too few */
    assert_int_equal(root(p)->kind, CZ__PICKLE_OPAQUE);
    cz__pickle_destroy(&p);
}

TEST(integers_of_any_length)
{
    cz__pickle *p = READ("\x80\2\x8a\x0a\1\0\0\0\0\0\0\0\0\0.");
    assert_int_equal(root(p)->integer, 1);
    cz__pickle_destroy(&p);
    p = READ("\x80\2\x8a\x0a\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff.");
    assert_int_equal(root(p)->integer, -2);
    cz__pickle_destroy(&p);
}

TEST(damage)
{
    static const bad cases[] = {
        BAD("", "no pickle"),
        BAD("K", "no pickle"),
        BAD("\x80\1N.", "protocol 1"),
        BAD("\x80\6N.", "protocol 6"),
        BAD("\x80\2", "it has no end"),
        BAD("\x80\2N", "it has no end"),
        BAD("\x80\2NN.", "2 values"),
        BAD("\x80\2.", "0 values"),
        BAD("\x80\2(N.", "with 1 values"),
        BAD("\x80\2N.N", "1 bytes left"),
        BAD("\x80\2\xff.", "0xff"),
        BAD("\x80\2J\1\2.", "ends in an opcode"),
        BAD("\x80\2X\xff\xff\xff\xff"
            "a.",
            "4294967295"),
        BAD("\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "a.",
            "18446744073709551615"),
        BAD("\x80\2X\2\0\0\0a\xff.", "not UTF-8"),
        BAD("\x80\2cos\nsyst.", "does not end"),
        BAD("\x80\2cos", "does not end"),
        BAD("\x80\2\x8a\x09"
            "12345678",
            "an integer of 9 bytes, 8 are left"),
        BAD("\x80\2t.", "mark"),
        BAD("\x80\2K\1\x86.", "tuple of 2"),
        BAD("\x80\2a.", "nothing to add"),
        BAD("\x80\2K\1a.", "a list that is not there"),
        BAD("\x80\2K\1K\2a.", "a list that is not there"),
        BAD("\x80\2}(K\1u.", "key without a value"),
        BAD("\x80\2}]Ns.", "a list as a key"),
        BAD("\x80\2(K\1]e.", "a list that is not there"),
        BAD("\x80\2h\0.", "value 0 of the memo"),
        BAD("\x80\2Nr\xff\xff\xff\xff.", "a memo of 4294967295"),
        BAD("\x80\2q\0.", "nothing to remember"),
        BAD("\x80\2N(q\0.", "nothing to remember"),
        BAD("\x80\2NQ.", "BINPERSID"),
        BAD("\x80\2R.", "a call without"),
        BAD("\x80\4K\1\x93.", "STACK_GLOBAL"),
        BAD("\x80\4\x95\xff\0\0\0\0\0\0\0.", "a frame of 255"),
        BAD("\x80\2b.", "BUILD without"),
    };
    refuse(cases, sizeof cases / sizeof *cases);
}

/* Each allocation that fails is said, and nothing is left. */
TEST(memory)
{
    static const char bytes[] = "\x80\2}q\0(X\1\0\0\0aq\1]q\2(K\1K\2eK\3X\1\0\0\0b\x85q\3u.";
    const int64_t before = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz__pickle *p;
        cz_test_fail_allocation(n);
        const cz_status status = cz__pickle_read(&p, "FILE", bytes, sizeof bytes - 1);
        const bool failed = cz_test_allocation_reset();
        cz__pickle_destroy(&p);
        assert_int_equal(cz_test_allocations_held(), before);
        if (!failed) {
            assert_ok(status);
            assert_true(n > 5);
            return;
        }
        assert_int_equal(status, CZ_ERR_MEMORY);
    }
}
