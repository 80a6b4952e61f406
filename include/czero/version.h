/* SPDX-License-Identifier: MIT */
/** @file version.h  The version, the export macro and the C++ guard: what every other header needs.
 *
 *  Structs whose first field is `size` grow at their end. A program begins with the struct's _INIT,
 *  or the function beside it, which set the size and the defaults: zero where nothing else is said.
 *  In every call that takes one, a size that was not set is CZ_ERR_ARGUMENT; what a newer program
 *  sets beyond what this library knows, and a `reserved` that is not 0, are CZ_ERR_UNSUPPORTED.
 *
 *      cz_zero_options options = CZ_ZERO_OPTIONS_INIT;      // or cz_zero_options_init(&options)
 *      options.partition = CZ_PARTITION_GREEDY; */
#ifndef CZERO_VERSION_H
#define CZERO_VERSION_H

#define CZ_VERSION_MAJOR 0
#define CZ_VERSION_MINOR 1
#define CZ_VERSION_PATCH 0

#if defined(__GNUC__)
#define CZ_API __attribute__((visibility("default")))
#define CZ_PRINTF(position, first) __attribute__((format(printf, position, first)))
#else
#define CZ_API
#define CZ_PRINTF(position, first)
#endif

/* In C++ a list that is written into a call is gone when the pointer to it is used. */
#ifdef __cplusplus
#define CZ_C_ONLY(sentence)                                                                        \
    ([] {                                                                                          \
        static_assert(sizeof(char) == 0, sentence);                                                \
        return nullptr;                                                                            \
    }())
#endif

/* Beside each NAME_INIT, name_init(), for code that is generated or cannot use a macro. It is a
 * function of the header: other languages zero the struct, set `size` and what has another default.
 * */
#define CZ_INIT_FUNCTION(type, init)                                                               \
    static inline void type##_init(type *fresh)                                                    \
    {                                                                                              \
        const type it = init;                                                                      \
        if (fresh)                                                                                 \
            *fresh = it;                                                                           \
    }

#ifdef __cplusplus
#define CZ_BEGIN_DECLS extern "C" {
#define CZ_END_DECLS }
#else
#define CZ_BEGIN_DECLS
#define CZ_END_DECLS
#endif

CZ_BEGIN_DECLS

/** The version of the library that is loaded, "MAJOR.MINOR.PATCH". Local; any thread; static text.
 *  */
CZ_API const char *cz_version(void);

/** How the loaded library was built and what it uses here: compiler, kernel levels (and the one in
 *  use), backends. One line, for bug reports. Local; any thread; static text. */
CZ_API const char *cz_build_info(void);

CZ_END_DECLS
#endif
