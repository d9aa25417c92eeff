/* Programs on words of samples, compiled once for each level of vector width (GW_LEVEL names it). */
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "engine.h"

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define INLINE static inline __attribute__((always_inline))

/* ---- 64 features of a row → 64 bits ---- */

/* Bit i is byte i, which is 0 or 1. */
INLINE uint64_t pack_bytes(const uint8_t *byte) {
#if defined(__AVX512BW__)
  return _mm512_cmpneq_epi8_mask(_mm512_loadu_si512(byte), _mm512_setzero_si512());
#elif defined(__AVX2__)
  const __m256i low = _mm256_loadu_si256((const __m256i *)byte), high = _mm256_loadu_si256((const __m256i *)(byte + 32));
  return (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(low, 7)) |
         (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(high, 7)) << 32;
#else
  uint64_t word = 0;
  for (int i = 0; i < 8; i++) {
    uint64_t eight = 0; /* put together byte by byte, so that it is the same on any machine */
    for (int j = 0; j < 8; j++) eight |= (uint64_t)byte[8 * i + j] << (8 * j);
    word |= (eight * 0x0102040810204080u >> 56) << (8 * i);
  }
  return word;
#endif
}

#define ABOVE(NAME, T)                                                            \
  INLINE uint64_t NAME(const T *x, const T *threshold) {                          \
    uint8_t above[64];                                                            \
    for (int i = 0; i < 64; i++) above[i] = x[i] > threshold[i];                  \
    return pack_bytes(above);                                                     \
  }
#if defined(__AVX512BW__)
INLINE uint64_t above_uint8(const uint8_t *x, const uint8_t *threshold) {
  return _mm512_cmpgt_epu8_mask(_mm512_loadu_si512(x), _mm512_loadu_si512(threshold));
}
#else
ABOVE(above_uint8, uint8_t)
#endif
ABOVE(above_float32, float)
ABOVE(above_float64, double)

/* Whether all of 64 numbers are finite, by their exponents. */
#define FINITE(NAME, T, BITS, EXPONENT)                                           \
  INLINE bool NAME(const T *x) {                                                  \
    BITS odd = 0;                                                                 \
    for (int i = 0; i < 64; i++) {                                                \
      BITS bits;                                                                  \
      memcpy(&bits, x + i, sizeof bits);                                          \
      odd |= (BITS)((bits & EXPONENT) == EXPONENT);                               \
    }                                                                             \
    return !odd;                                                                  \
  }
FINITE(finite_float32, float, uint32_t, 0x7f800000u)
FINITE(finite_float64, double, uint64_t, 0x7ff0000000000000u)
#define ANY_UINT8(x) ((void)(x), true)

/* Words [g0, g1) of 64 features of a row, `step` apart; false if a number is not finite. */
#define WORDS_OF(NAME, T, ABOVE, IS_FINITE)                                                                 \
  INLINE bool NAME(const struct gw_source *s, const void *row, int64_t plane, int64_t g0, int64_t g1,       \
                   uint64_t *word, int64_t step) {                                                          \
    const int64_t groups = (s->features + 63) / 64;                                                         \
    const T *x = row, *threshold = (const T *)s->threshold + plane * groups * 64;                           \
    for (int64_t g = g0; g < g1; g++, word += step) {                                                       \
      const T *from = x + 64 * g;                                                                           \
      T some[64] = {0};                                                                                     \
      if (64 * g + 64 > s->features) from = memcpy(some, from, (size_t)(s->features - 64 * g) * sizeof *x); \
      if (!IS_FINITE(from)) return false;                                                                   \
      *word = ABOVE(from, threshold + 64 * g) | s->always[plane * groups + g];                              \
    }                                                                                                       \
    return true;                                                                                            \
  }
WORDS_OF(words_of_uint8, uint8_t, above_uint8, ANY_UINT8)
WORDS_OF(words_of_float32, float, above_float32, finite_float32)
WORDS_OF(words_of_float64, double, above_float64, finite_float64)

INLINE bool words_of_packed(const struct gw_source *s, const void *row, int64_t plane, int64_t g0, int64_t g1,
                            uint64_t *word, int64_t step) {
  (void)plane;
  for (int64_t g = g0; g < g1; g++, word += step) {
    const int64_t left = (s->features - 64 * g + 7) / 8;
    const uint8_t *byte = (const uint8_t *)row + 8 * g;
    uint8_t some[8] = {0};
    if (left < 8) byte = memcpy(some, byte, (size_t)left);
    *word = (uint64_t)byte[0] | (uint64_t)byte[1] << 8 | (uint64_t)byte[2] << 16 | (uint64_t)byte[3] << 24 |
            (uint64_t)byte[4] << 32 | (uint64_t)byte[5] << 40 | (uint64_t)byte[6] << 48 | (uint64_t)byte[7] << 56;
  }
  return true;
}

/* ---- gates ---- */

/* Row r of a table of three inputs, as a constant. */
#define ROW(T, r) ((T) >> (7 - (r)) & 1)
#define IGNORES_C(T) (((T) & 0x55) == ((T) >> 1 & 0x55))

#define LANES 1
#define NAME(f) f##_narrow
#define TERNARY(T, a, b, c) generic_ternary(T, a, b, c)
typedef uint64_t word_narrow;
#define WORD word_narrow
#include "engine_word.h"
#undef LANES
#undef NAME
#undef TERNARY
#undef WORD

#if defined(__AVX512F__)
#define LANES 8
#define REVERSED(T) \
  (((T) & 1) << 7 | ((T) & 2) << 5 | ((T) & 4) << 3 | ((T) & 8) << 1 | ((T) >> 1 & 8) | ((T) >> 3 & 4) | ((T) >> 5 & 2) | (T) >> 7)
#define TERNARY(T, a, b, c) \
  (word_wide) _mm512_ternarylogic_epi64((__m512i)(a), (__m512i)(b), (__m512i)(c), REVERSED(T))
#elif defined(__AVX2__)
#define LANES 4
#else
#define LANES 2
#endif
#ifndef TERNARY
#define TERNARY(T, a, b, c) generic_ternary(T, a, b, c)
#endif
#define NAME(f) f##_wide
typedef uint64_t word_wide __attribute__((vector_size(8 * LANES), may_alias));
#define WORD word_wide
#include "engine_word.h"

int JOIN(gw_tiles, GW_LEVEL)(const struct gw_program *p, const struct gw_source *source, const void *rows,
                             int64_t stride, int64_t samples, void *state, int result, void *out) {
  const int64_t row_bytes[] = {sizeof(int64_t), p->classes * (int64_t)sizeof(int32_t), (p->outputs + 63) / 64 * 8};
  for (int64_t done = 0; done < samples;) {
    const int64_t left = samples - done, count = left < 64 * LANES ? left : 64 * LANES;
    const uint8_t *from = (const uint8_t *)rows + done * stride;
    uint8_t *to = (uint8_t *)out + done * row_bytes[result];
    const bool fine = count <= 64 ? tile_narrow(p, source, from, stride, count, state, result, to)
                                  : tile_wide(p, source, from, stride, count, state, result, to);
    if (!fine) return GW_NOT_FINITE;
    done += count;
  }
  return GW_OK;
}
