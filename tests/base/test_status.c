/* SPDX-License-Identifier: MIT */
/* Sentences: one per thread, of any length, made of the one before. */
#include "support/cz_test.h"

#include "base/status.h"

#include <pthread.h>
#include <string.h>
#include <wchar.h>

TEST(empty_before_the_first)
{
    assert_string_equal(cz_last_error(), "");
}

TEST(status_is_returned_and_sentence_kept)
{
    assert_int_equal(cz__fail(CZ_ERR_PEER, "rank %d of %d", 2, 4), CZ_ERR_PEER);
    assert_string_equal(cz_last_error(), "rank 2 of 4");
    assert_int_equal(cz_fail(CZ_ERR_IO, "file \"%s\"", "a"), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "file \"a\"");
}

TEST(arguments_may_be_the_old_sentence)
{
    cz__fail(CZ_ERR_STATE, "the reason");
    cz__fail(CZ_ERR_STATE, "%s, %s", cz_last_error(), cz_last_error());
    assert_string_equal(cz_last_error(), "the reason, the reason");
    assert_int_equal(cz__fail_in(CZ_ERR_MISMATCH, "step"), CZ_ERR_MISMATCH);
    assert_string_equal(cz_last_error(), "step: the reason, the reason");
}

TEST(sentences_grow)
{
    cz__fail(CZ_ERR_STATE, "x");
    for (int i = 0; i < 14; i++)
        cz__fail(CZ_ERR_STATE, "%s%s", cz_last_error(), cz_last_error());
    assert_int_equal(strlen(cz_last_error()), 1 << 14);
    cz__fail(CZ_ERR_STATE, "%s", "");
    assert_string_equal(cz_last_error(), "");
}

/* No character of any encoding: the formatter itself fails, as it does without memory. */
TEST(a_static_text_when_none_can_be_made)
{
    cz__fail(CZ_ERR_STATE, "before");
    assert_int_equal(cz__fail(CZ_ERR_MEMORY, "%lc", (wint_t)0x7fffffff), CZ_ERR_MEMORY);
    assert_non_null(strstr(cz_last_error(), "could not be kept"));
    cz__fail(CZ_ERR_STATE, "after: %s", cz_last_error());
    assert_non_null(strstr(cz_last_error(), "after: a failure"));
}

/* Runs at the thread's end, perhaps after the sentence was freed. */
static void read_late(void *seen)
{
    *(size_t *)seen = strlen(cz_last_error());
    cz__fail(CZ_ERR_STATE, "said very late");
}

/* Returns NULL if all is well. */
static void *each_thread(void *late)
{
    if (strcmp(cz_last_error(), "") != 0)
        return late;
    cz__fail(CZ_ERR_STATE, "the thread's own");
    static size_t length;
    pthread_setspecific(*(pthread_key_t *)late, &length);
    return strcmp(cz_last_error(), "the thread's own") == 0 ? NULL : late;
}

TEST(threads_have_their_own)
{
    pthread_t thread;
    pthread_key_t late;
    void *why = NULL;
    assert_int_equal(pthread_key_create(&late, read_late), 0);
    cz__fail(CZ_ERR_STATE, "the main thread's");
    assert_int_equal(pthread_create(&thread, NULL, each_thread, &late), 0);
    assert_int_equal(pthread_join(thread, &why), 0);
    assert_null(why);
    assert_string_equal(cz_last_error(), "the main thread's");
    pthread_key_delete(late);
}

static cz_status pass_up(cz_status status)
{
    CZ_TRY(status);
    return cz__fail(CZ_ERR_INTERNAL, "went on");
}

TEST(names_and_passing_up)
{
    assert_int_equal(pass_up(CZ_ERR_TIMEOUT), CZ_ERR_TIMEOUT);
    assert_int_equal(pass_up(CZ_OK), CZ_ERR_INTERNAL);
    assert_string_equal(cz_status_name(CZ_OK), "CZ_OK");
    assert_string_equal(cz_status_name(CZ_ERR_INTERNAL), "CZ_ERR_INTERNAL");
    for (int s = CZ_OK; s <= CZ_ERR_FORMAT; s++)
        assert_memory_equal(cz_status_name((cz_status)s), "CZ_", 3);
    assert_string_equal(cz_status_name((cz_status)(CZ_ERR_FORMAT + 1)), "unknown status");
    assert_string_equal(cz_status_name((cz_status)-1), "unknown status");
}

static cz_status quiet(cz_status status)
{
    return status;
}

/* Code of the program need not say why; what was said before is not why. */
TEST(calls_of_the_program)
{
    cz__fail(CZ_ERR_STATE, "long ago");
    assert_int_equal(CZ__CALL_PROGRAM(quiet(CZ_ERR_IO)), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "CZ_ERR_IO");
    assert_int_equal(CZ__CALL_PROGRAM(cz_fail(CZ_ERR_IO, "no data")), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "no data");
    assert_int_equal(CZ__CALL_PROGRAM(cz_fail(CZ_ERR_PEER, "%s", "")), CZ_ERR_PEER);
    assert_string_equal(cz_last_error(), "CZ_ERR_PEER");
    cz__fail(CZ_ERR_STATE, "being read");
    const char *before = cz_last_error();
    assert_ok(CZ__CALL_PROGRAM(quiet(CZ_OK)));
    assert_string_equal(cz_last_error(), "");
    assert_string_equal(before, "being read"); /* valid until the next failure */
}
