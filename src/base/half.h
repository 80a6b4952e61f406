/* SPDX-License-Identifier: MIT */
/* Single numbers of 16 bits: to nearest, ties to even; NaN stays NaN (quiet), overflow becomes
 * infinity. */
#ifndef CZ_BASE_HALF_H
#define CZ_BASE_HALF_H

#include <stdint.h>

uint16_t cz__bf16_from_f32(float value);
float cz__f32_from_bf16(uint16_t bits);
uint16_t cz__f16_from_f32(float value);
float cz__f32_from_f16(uint16_t bits);

#endif
