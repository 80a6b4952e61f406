/* SPDX-License-Identifier: MIT */
/* What tests in C++ expect; otherwise the program ends with the line. */
#ifndef CZ_TEST_EXPECT_HPP
#define CZ_TEST_EXPECT_HPP

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);          \
            std::abort();                                                                          \
        }                                                                                          \
    } while (0)

/* `call` throws a Type whose text has `words`. */
#define EXPECT_THROW(Type, words, call)                                                            \
    do {                                                                                           \
        bool thrown = false;                                                                       \
        try {                                                                                      \
            call;                                                                                  \
        } catch (const Type &e) {                                                                  \
            thrown = true;                                                                         \
            if (!std::strstr(e.what(), words))                                                     \
                std::fprintf(stderr, "%s:%d: threw: %s\n", __FILE__, __LINE__, e.what());          \
            EXPECT(std::strstr(e.what(), words));                                                  \
        }                                                                                          \
        EXPECT(thrown &&#call);                                                                    \
    } while (0)

#endif
