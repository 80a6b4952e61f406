/* SPDX-License-Identifier: MIT */
/* Fingerprints of bytes in 64 bits, without a key and with one. */
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>

#include "base/fingerprint.h"
#include "base/thread.h"
#include "czero/base.h"

/* ---- without a key ---- */
/* FNV-1a with 64 bits (Fowler, Noll, Vo); over many bytes, four at once of words, as they wait for
 * each other less. */

static const uint64_t basis = UINT64_C(0xcbf29ce484222325), prime = UINT64_C(0x100000001b3);

uint64_t cz__fingerprint(uint64_t before, const void *bytes, size_t count)
{
    const uint8_t *byte = bytes;
    uint64_t hash = before ^ basis;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * prime;
    return hash;
}

/* Of a product the lower bits know nothing of the upper ones of its factors, so these are brought
 * down. */
static uint64_t mix_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* Less than a block: words, the last one with zeros, and how many bytes there were. */
static uint64_t add_rest(uint64_t hash, const uint8_t *byte, size_t count)
{
    uint64_t word;
    size_t at = 0;
    for (; count - at >= sizeof word; at += sizeof word) {
        memcpy(&word, byte + at, sizeof word);
        hash = mix_word(hash, word);
    }
    word = 0;
    memcpy(&word, byte + at, count - at);
    return mix_word(mix_word(hash, word), count);
}

uint64_t cz__fingerprint_elements(uint64_t before, const void *bytes, size_t count)
{
    enum { LANES = 4, BLOCK = LANES * sizeof(uint64_t) };
    const uint8_t *byte = bytes;
    uint64_t lanes[LANES], words[LANES];
    if (count < BLOCK)
        return add_rest(before, byte, count);
    for (int k = 0; k < LANES; k++)
        lanes[k] = before ^ basis * (uint64_t)(2 * k + 1);
    size_t at = 0;
    for (; count - at >= BLOCK; at += BLOCK) {
        memcpy(words, byte + at, sizeof words);
        for (int k = 0; k < LANES; k++)
            lanes[k] = mix_word(lanes[k], words[k]);
    }
    uint64_t hash = before;
    for (int k = 0; k < LANES; k++)
        hash = mix_word(hash, lanes[k]);
    return count > at ? add_rest(hash, byte + at, count - at) : hash;
}

void cz_fingerprint_chain(uint64_t chain[2], int64_t step, const uint64_t fingerprint[2])
{
    if (!chain || !fingerprint)
        return;
    const uint64_t words[] = {chain[0], chain[1], (uint64_t)step, fingerprint[0], fingerprint[1]};
    for (int k = 0; k < 2; k++) {
        uint64_t hash = k ? prime : basis;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            hash = mix_word(hash, words[i] + (uint64_t)k * basis);
        chain[k] = mix_word(hash, prime);
    }
}

/* ---- with a key ---- */
/* SipHash-2-4: Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012. */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static uint64_t process_key[2];

/* Where the kernel does not answer at once: the bytes that it gave the process at its start. */
static void draw_key(void)
{
    CZ__UNCANCELLED;
    if (getrandom(process_key, sizeof process_key, GRND_NONBLOCK) == (ssize_t)sizeof process_key)
        return;
    const void *bytes = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    if (bytes)
        memcpy(process_key, bytes, sizeof process_key);
}

static uint64_t turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = turn(v[1], 13) ^ v[0];
        v[3] = turn(v[3], 16) ^ v[2];
        v[0] = turn(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = turn(v[1], 17) ^ v[2];
        v[3] = turn(v[3], 21) ^ v[0];
        v[2] = turn(v[2], 32);
    }
}

/* Up to 8 bytes, little-endian. */
static uint64_t word_of(const uint8_t *bytes, size_t count)
{
    uint64_t word = 0;
    for (size_t i = 0; i < count; i++)
        word |= (uint64_t)bytes[i] << 8 * i;
    return word;
}

uint64_t cz__keyed_hash_with(const uint64_t key[2], const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    const size_t whole = count / 8 * 8;
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    for (size_t i = 0; i <= whole; i += 8) {
        const uint64_t last = (uint64_t)(count & 0xff) << 56;
        const uint64_t word = i < whole ? word_of(at + i, 8) : last | word_of(at + i, count - i);
        v[3] ^= word;
        mix(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t cz__keyed_hash(const void *bytes, size_t count)
{
    pthread_once(&key_once, draw_key);
    return cz__keyed_hash_with(process_key, bytes, count);
}
