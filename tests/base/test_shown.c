/* SPDX-License-Identifier: MIT */
/* What a sentence or a log line may not have in it, wherever its names and paths come from. */
#include <string.h>

#include "base/log.h"
#include "base/plain_text.h"
#include "base/status.h"
#include "support/cz_test.h"

TEST(sentences_are_made_plain)
{
    static const struct {
        const char *before, *after;
    } cases[] = {
        {"plain, \xc3\xa9 and \xe2\x82\xac\n\tnext", "plain, \xc3\xa9 and \xe2\x82\xac\n\tnext"},
        {"\x1b[2J\a\r\x7f", "?[2J???"},
        {"a\xe2\x80\xae"
         "b",
         "a?b"}, /* turns what follows round */
        {"a\xc2\x9b"
         "31m",
         "a?31m"},            /* a control character of two bytes */
        {"cut \xc3", "cut "}, /* in the middle of a character */
        {"cut \xe2\x82' and on", "cut ' and on"},
        {"cut \xf0\x9f\x98' \xe2' ", "cut ' ' "},
        {"no \xff\x80\xc0 UTF-8", "no ??? UTF-8"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i].before);
        cz__make_plain(text);
        assert_string_equal(text, cases[i].after);
        assert_int_equal(cz__fail(CZ_ERR_FORMAT, "%s", cases[i].before), CZ_ERR_FORMAT);
        assert_string_equal(cz_last_error(), cases[i].after);
    }
    assert_int_equal(cz_fail(CZ_ERR_IO, "'%.5s'", "abc\xe2\x82\xac"), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "'abc'");
}

static void keep(cz_log_level level, const char *line, void *context)
{
    snprintf(context, 64, "%s", line);
}

TEST(log_lines_are_made_plain)
{
    char line[64] = "";
    cz_log_set_sink(keep, line);
    cz__log(CZ_LOG_ERROR, "of '%s'", "\x1b]0;title\a");
    assert_string_equal(line, "of '?]0;title?'");
    cz_log(CZ_LOG_ERROR, "of '%.1s'", "\xc3\xa9");
    assert_string_equal(line, "of ''");
    cz_log_set_sink(NULL, NULL);
}
