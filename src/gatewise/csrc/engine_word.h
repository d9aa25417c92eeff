/* Programs on one type of word: WORD of LANES times 64 samples. Included by engine_kernels.c once a type.
 *
 * Lane l of a word holds samples 64 l to 64 l + 63, the first in the lowest bit.
 */

INLINE WORD NAME(broadcast)(uint64_t bits) { return (WORD){0} + bits; }

/* ---- gates ---- */

/* By Shannon: the table of b and c where a is 1, and where it is 0. T is a constant, so little of it is left. */
INLINE WORD NAME(half)(int r0, int r1, int r2, int r3, WORD b, WORD c) {
  const WORD of_b = b & NAME(broadcast)(-(uint64_t)(r0 ^ r2)), of_c = c & NAME(broadcast)(-(uint64_t)(r0 ^ r1));
  return NAME(broadcast)(-(uint64_t)r0) ^ of_b ^ of_c ^ (b & c & NAME(broadcast)(-(uint64_t)(r0 ^ r1 ^ r2 ^ r3)));
}

#undef generic_ternary
#define generic_ternary(T, a, b, c) NAME(shannon)(T, a, b, c)
INLINE WORD NAME(shannon)(int T, WORD a, WORD b, WORD c) {
  const WORD zero = NAME(half)(ROW(T, 0), ROW(T, 1), ROW(T, 2), ROW(T, 3), b, c);
  const WORD one = NAME(half)(ROW(T, 4), ROW(T, 5), ROW(T, 6), ROW(T, 7), b, c);
  return zero ^ (a & (zero ^ one));
}

#define GATES(T)                                                                       \
  case T:                                                                              \
    for (int32_t i = 0; i < count; i++) {                                              \
      const WORD a = state[code[0]], b = state[code[1]];                               \
      const WORD c = IGNORES_C(T) ? a : state[code[2]];                                \
      state[code[IGNORES_C(T) ? 2 : 3]] = IGNORES_C(T) ? NAME(pair)(T, a, b) : TERNARY(T, a, b, c); \
      code += IGNORES_C(T) ? 3 : 4;                                                    \
    }                                                                                  \
    break;
#define GATES4(T) GATES(T) GATES(T + 1) GATES(T + 2) GATES(T + 3)
#define GATES16(T) GATES4(T) GATES4(T + 4) GATES4(T + 8) GATES4(T + 12)

INLINE WORD NAME(pair)(int T, WORD a, WORD b) {
  switch (T) { /* the gates of two inputs whose first row is 0, inputs in order; each row stands twice */
    case 0x03: return a & b;
    case 0x0c: return a & ~b;
    case 0x3c: return a ^ b;
    case 0x3f: return a | b;
  }
  return a;
}

static void NAME(gates)(const struct gw_program *p, WORD *state) {
  const uint32_t *restrict code = p->code;
  for (const struct gw_run *run = p->run; run < p->run + p->runs; run++) {
    const int32_t count = run->count;
    switch (run->op) {
      GATES16(0) GATES16(16) GATES16(32) GATES16(48) GATES16(64) GATES16(80) GATES16(96) GATES16(112)
    }
  }
}

/* ---- rows of bits ↔ words of samples ---- */

/* Exchange, in words x and y that are `far` apart, the high bits of each 2 * far of x with the low ones of y. */
#define EXCHANGE(x, y, far)                                                                                \
  do {                                                                                                     \
    const WORD t_ = ((x >> (far)) ^ y) & NAME(broadcast)(~(uint64_t)0 / (((uint64_t)1 << (far)) + 1));     \
    y ^= t_;                                                                                               \
    x ^= t_ << (far);                                                                                      \
  } while (0)
#define EXCHANGE4(a, b, c, d, e, f, g, h, far)                                           \
  do {                                                                                   \
    EXCHANGE(a, b, far);                                                                 \
    EXCHANGE(c, d, far);                                                                 \
    EXCHANGE(e, f, far);                                                                 \
    EXCHANGE(g, h, far);                                                                 \
  } while (0)

/* Three stages on eight words that are `stride` apart. */
INLINE void NAME(exchange8)(WORD *m, int stride) {
  WORD a = m[0], b = m[stride], c = m[2 * stride], d = m[3 * stride];
  WORD e = m[4 * stride], f = m[5 * stride], g = m[6 * stride], h = m[7 * stride];
  EXCHANGE4(a, e, b, f, c, g, d, h, 4 * stride);
  EXCHANGE4(a, c, b, d, e, g, f, h, 2 * stride);
  EXCHANGE4(a, b, c, d, e, f, g, h, stride);
  m[0] = a, m[stride] = b, m[2 * stride] = c, m[3 * stride] = d;
  m[4 * stride] = e, m[5 * stride] = f, m[6 * stride] = g, m[7 * stride] = h;
}

/* In each lane: bit j of word i ↔ bit i of word j. */
static void NAME(transpose)(WORD *m) {
  for (int i = 0; i < 8; i++) NAME(exchange8)(m + i, 8);
  for (int i = 0; i < 64; i += 8) NAME(exchange8)(m + i, 1);
}

/* Ask for bytes [begin, end) of a row ahead of time: with one row of each lane in turn, the processor foresees nothing. */
INLINE void NAME(fetch)(const uint8_t *row, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += 64) __builtin_prefetch(row + i);
}

/* Words [g0, g1) of 64 features of all rows, a block of 64 words each; false if a number is not finite. */
static bool NAME(read_rows)(const struct gw_source *s, const uint8_t *rows, int64_t stride, int64_t count, int64_t plane,
                            int64_t g0, int64_t g1, WORD *words) {
  const int64_t bytes = (int64_t[]){8, 64, 256, 512}[s->kind]; /* of 64 features */
  if (count < 64 * LANES) memset(words, 0, (size_t)(g1 - g0) * BLOCK * sizeof *words);
  /* all lanes of a word one after the other, while its cache line is at hand */
#define EACH_ROW(WORDS_OF)                                                                                  \
  for (int64_t i = 0; i < 64; i++)                                                                          \
    for (int64_t lane = 0; lane < LANES && 64 * lane + i < count; lane++) {                                 \
      const uint8_t *row = rows + (64 * lane + i) * stride;                                                 \
      if (i < 63 && 64 * lane + i + 1 < count) NAME(fetch)(row + stride, g0 * bytes, g1 * bytes);           \
      if (!WORDS_OF(s, row, plane, g0, g1, (uint64_t *)words + i * LANES + lane, BLOCK * LANES)) return false; \
    }                                                                                                       \
  return true
  switch (s->kind) {
    case GW_UINT8: EACH_ROW(words_of_uint8);
    case GW_FLOAT32: EACH_ROW(words_of_float32);
    case GW_FLOAT64: EACH_ROW(words_of_float64);
    default: EACH_ROW(words_of_packed);
  }
#undef EACH_ROW
}

/* Fill the slots of 64 inputs from a block. */
INLINE void NAME(fill_slots)(const int32_t *slot, int64_t features, int64_t count, WORD *block, WORD *state) {
  if (count == 1) { /* nothing to transpose */
    const uint64_t bits = *(const uint64_t *)block;
    for (int64_t f = 0; f < features; f++)
      if (slot[f] >= 0) state[slot[f]] = (WORD){0} + (bits >> f & 1);
    return;
  }
  NAME(transpose)(block);
  for (int64_t f = 0; f < features; f++)
    if (slot[f] >= 0) state[slot[f]] = block[f];
}

/* Fill the slots of the inputs; false if a number is not finite. */
static bool NAME(load)(const struct gw_program *p, const struct gw_source *s, const uint8_t *rows, int64_t stride,
                       int64_t count, WORD *state) {
  const int64_t groups = (s->features + 63) / 64;
  WORD *const words = state + p->slots; /* [ROW_WORDS, BLOCK] */
  for (int64_t plane = 0; plane < s->planes; plane++)
    for (int64_t g0 = 0; g0 < groups; g0 += ROW_WORDS) {
      const int64_t g1 = g0 + ROW_WORDS < groups ? g0 + ROW_WORDS : groups;
      if (!NAME(read_rows)(s, rows, stride, count, plane, g0, g1, words)) return false;
      for (int64_t g = g0; g < g1; g++) {
        const int64_t first = 64 * g, left = s->features - first;
        const int32_t *slot = p->input_slot + plane * s->features + first;
        NAME(fill_slots)(slot, left < 64 ? left : 64, count, words + (g - g0) * BLOCK, state);
      }
    }
  return true;
}

INLINE WORD NAME(output)(const WORD *state, int32_t slot) {
  return state[slot >> 1] ^ NAME(broadcast)(-(uint64_t)(slot & 1));
}

static void NAME(store_bits)(const struct gw_program *p, const WORD *state, int64_t count, uint64_t *out) {
  const int64_t groups = (p->outputs + 63) / 64;
  WORD m[64];
  for (int64_t g = 0; g < groups; g++) {
    const int64_t left = p->outputs - 64 * g, here = left < 64 ? left : 64;
    for (int64_t i = 0; i < here; i++) m[i] = NAME(output)(state, p->output_slot[64 * g + i]);
    for (int64_t i = here; i < 64; i++) m[i] = (WORD){0};
    NAME(transpose)(m);
    for (int64_t i = 0; i < count; i++) out[i * groups + g] = ((const uint64_t *)(m + i % 64))[i / 64];
  }
}

/* ---- counting: number p of the bits of a count is word p ---- */

enum { NAME(DIGITS) = 32 };

/* Sum and carry of three bits: two ternary operations. */
#define ADD3(sum, b, c, carry)                                   \
  do {                                                           \
    const WORD a_ = sum, b_ = b, c_ = c;                         \
    sum = TERNARY(0x69, a_, b_, c_);                             \
    carry = TERNARY(0x17, a_, b_, c_);                           \
  } while (0)

INLINE void NAME(increment)(WORD *digit, int digits, int at, WORD carry) {
  for (int d = at; d < digits; d++) {
    const WORD next = digit[d] & carry;
    digit[d] ^= carry;
    carry = next;
  }
}

/* The number of ones among outputs [begin, end), eight at a time by carry-save adders. */
static void NAME(count_ones)(const WORD *state, const int32_t *slot, int64_t count, int digits, WORD *digit) {
  for (int d = 0; d < digits; d++) digit[d] = (WORD){0};
  WORD ones = {0}, twos = {0}, fours = {0};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    WORD x[8], two[2], four[2], eight;
    for (int j = 0; j < 8; j++) x[j] = NAME(output)(state, slot[i + j]);
    for (int half = 0; half < 2; half++) {
      ADD3(ones, x[4 * half], x[4 * half + 1], two[0]);
      ADD3(ones, x[4 * half + 2], x[4 * half + 3], two[1]);
      ADD3(twos, two[0], two[1], four[half]);
    }
    ADD3(fours, four[0], four[1], eight);
    NAME(increment)(digit, digits, 3, eight);
  }
  if (i) digit[0] = ones, digit[1] = twos, digit[2] = fours;
  for (; i < count; i++) NAME(increment)(digit, digits, 0, NAME(output)(state, slot[i]));
}

/* number[i] += the number whose binary digits are bit i of words, times `scale`; for one lane of 64 samples. */
INLINE void NAME(read_numbers)(const WORD *digit, int digits, int lane, uint32_t number[64]) {
  memset(number, 0, 64 * sizeof *number);
  for (int d = 0; d < digits; d++) {
    const uint64_t bits = ((const uint64_t *)(digit + d))[lane];
    for (int i = 0; i < 64; i++) number[i] |= (uint32_t)(bits >> i & 1) << d;
  }
}

INLINE int NAME(digits_of)(int64_t largest) {
  int digits = 0;
  while (largest >> digits) digits++;
  return digits < 3 ? 3 : digits; /* count_ones fills three */
}

static void NAME(store_counts)(const struct gw_program *p, const WORD *state, int64_t count, int32_t *out) {
  const int64_t size = (p->outputs + p->classes - 1) / p->classes;
  const int digits = NAME(digits_of)(size);
  WORD digit[NAME(DIGITS)];
  for (int64_t c = 0; c < p->classes; c++) {
    const int64_t begin = c * size < p->outputs ? c * size : p->outputs, left = p->outputs - begin;
    NAME(count_ones)(state, p->output_slot + begin, left < size ? left : size, digits, digit);
    for (int64_t i = 0; i < count; i += 64) {
      uint32_t number[64];
      NAME(read_numbers)(digit, digits, (int)(i / 64), number);
      for (int64_t j = 0; j < 64 && i + j < count; j++) out[(i + j) * p->classes + c] = (int32_t)number[j];
    }
  }
}

/* The class of the largest count, compared digit by digit for all samples at once. */
static void NAME(store_classes)(const struct gw_program *p, const WORD *state, int64_t count, int64_t *out) {
  const int64_t size = (p->outputs + p->classes - 1) / p->classes;
  const int digits = NAME(digits_of)(size), class_digits = NAME(digits_of)(p->classes - 1);
  WORD best[NAME(DIGITS)], digit[NAME(DIGITS)], number[NAME(DIGITS)];
  for (int d = 0; d < class_digits; d++) number[d] = (WORD){0};
  for (int64_t c = 0; c < p->classes; c++) {
    const int64_t begin = c * size < p->outputs ? c * size : p->outputs, left = p->outputs - begin;
    NAME(count_ones)(state, p->output_slot + begin, left < size ? left : size, digits, c ? digit : best);
    if (c == 0) continue;
    WORD larger = {0};
    for (int d = 0; d < digits; d++) larger = (digit[d] & ~best[d]) | (larger & ~(digit[d] ^ best[d]));
    for (int d = 0; d < digits; d++) best[d] ^= larger & (best[d] ^ digit[d]);
    for (int d = 0; d < class_digits; d++)
      number[d] ^= larger & (number[d] ^ NAME(broadcast)(-(uint64_t)(c >> d & 1)));
  }
  for (int64_t i = 0; i < count; i += 64) {
    uint32_t found[64];
    NAME(read_numbers)(number, class_digits, (int)(i / 64), found);
    for (int64_t j = 0; j < 64 && i + j < count; j++) out[i + j] = found[j];
  }
}

/* Up to 64 * LANES samples; false if a number is not finite. */
static bool NAME(tile)(const struct gw_program *p, const struct gw_source *source, const uint8_t *rows, int64_t stride,
                       int64_t count, void *memory, int result, void *out) {
  WORD *state = memory;
  state[0] = (WORD){0};
  if (!NAME(load)(p, source, rows, stride, count, state)) return false;
  NAME(gates)(p, state);
  if (result == GW_BITS) NAME(store_bits)(p, state, count, out);
  if (result == GW_COUNTS) NAME(store_counts)(p, state, count, out);
  if (result == GW_CLASSES) NAME(store_classes)(p, state, count, out);
  return true;
}
