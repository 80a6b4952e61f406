/* SPDX-License-Identifier: MIT */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

enum { LINE = 64, AHEAD = 16 * LINE };

static void stream_line(char *to, const char *from)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
    const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
    const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
    _mm_stream_si128((__m128i *)(void *)to, a);
    _mm_stream_si128((__m128i *)(void *)(to + 16), b);
    _mm_stream_si128((__m128i *)(void *)(to + 32), c);
    _mm_stream_si128((__m128i *)(void *)(to + 48), d);
}

void cz__copy_past_caches(void *to, const void *from, size_t bytes)
{
    char *out = to;
    const char *in = from;
    const size_t before = (size_t)(-(uintptr_t)out % LINE);
    size_t done = before < bytes ? before : bytes;
    if (done > 0)
        memcpy(out, in, done);
    for (; bytes - done >= LINE; done += LINE) {
        __builtin_prefetch(in + done + AHEAD, 0, 0);
        stream_line(out + done, in + done);
    }
    _mm_sfence();
    if (done < bytes)
        memcpy(out + done, in + done, bytes - done);
}

#else

void cz__copy_past_caches(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
}

#endif
