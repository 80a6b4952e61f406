/* SPDX-License-Identifier: MIT */
/* The version as text and as numbers, and time that does not run backwards. */
#include "support/cz_test.h"

#include "base/clock.h"

#include <time.h>

TEST(text_is_the_numbers)
{
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", CZ_VERSION_MAJOR, CZ_VERSION_MINOR, CZ_VERSION_PATCH);
    assert_string_equal(cz_version(), text);
}

TEST(time_goes_on)
{
    const double begin = cz__seconds();
    double last = begin;
    for (int i = 0; i < 1000; i++) {
        const double now = cz__seconds();
        assert_true(now >= last);
        last = now;
    }
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    const double slept = cz__seconds() - last;
    assert_true(slept >= 0.002 && slept < 60);
}
