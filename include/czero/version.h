/* SPDX-License-Identifier: MIT */
/** @file version.h  The version, the export macro and the C++ guard: what every other header needs. */
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

#ifdef __cplusplus
#define CZ_BEGIN_DECLS extern "C" {
#define CZ_END_DECLS }
#else
#define CZ_BEGIN_DECLS
#define CZ_END_DECLS
#endif

CZ_BEGIN_DECLS

/** The version of the library that is loaded, "MAJOR.MINOR.PATCH". Local; any thread; static text. */
CZ_API const char *cz_version(void);

/** How the loaded library was built and what it uses here: compiler, kernel levels (and the one in
 *  use), backends. One line, for bug reports. Local; any thread; static text. */
CZ_API const char *cz_build_info(void);

CZ_END_DECLS
#endif
