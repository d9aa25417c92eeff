/* The mixing kernels, compiled once for each level of vector width (GW_LEVEL names it). */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "gatewise.h"

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { WIDE = 4 };   /* vectors held in registers at a time */
enum { BLOCK = 256 }; /* samples between two looks at where the inputs stand */

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(4), may_alias));

/* Sets of gates, a bit each: those that read anything, and those that do not depend on their first, or second, input.
 * A gate that ignores an input is given its other one twice: what is not fetched costs nothing, and the coefficients
 * of the ignored input are zero. */
struct gate_sets {
  uint32_t read, ignore_a, ignore_b;
};

static struct gate_sets derive_sets(void) {
  struct gate_sets sets = {0, 0, 0};
  for (int id = 0; id < 16; id++) {
    const int f00 = id >> 3 & 1, f01 = id >> 2 & 1, f10 = id >> 1 & 1, f11 = id & 1;
    const bool depends_a = f00 != f10 || f01 != f11, depends_b = f00 != f01 || f10 != f11;
    sets.read |= (uint32_t)(depends_a || depends_b) << id;
    sets.ignore_a |= (uint32_t)!depends_a << id;
    sets.ignore_b |= (uint32_t)!depends_b << id;
  }
  return sets;
}

/* Sum and maximum in eight parts, which the compiler may keep in one register; one part would be a chain of k steps. */
#define IN_PARTS(NAME, START, COMBINE)                                  \
  INLINE float NAME(const float *x, int64_t k) {                        \
    float part[8];                                                      \
    for (int j = 0; j < 8; j++) part[j] = START;                        \
    int64_t i = 0;                                                      \
    for (; i + 8 <= k; i += 8)                                          \
      for (int j = 0; j < 8; j++) part[j] = COMBINE(part[j], x[i + j]); \
    for (; i < k; i++) part[0] = COMBINE(part[0], x[i]);                \
    for (int half = 4; half; half /= 2)                                 \
      for (int j = 0; j < half; j++) part[j] = COMBINE(part[j], part[j + half]); \
    return part[0];                                                     \
  }
#define ADD(a, b) ((a) + (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
IN_PARTS(sum, 0, ADD)
IN_PARTS(maximum, -INFINITY, LARGER)

/* What one neuron mixes: probability times the coefficients of each gate, and which candidates read their inputs;
 * the constants among them only add to `constant`. */
struct mixture {
  float constant;
  float ca[GW_MAX_CANDIDATES], cb[GW_MAX_CANDIDATES], cab[GW_MAX_CANDIDATES]; /* by candidate */
  int64_t count;
  int32_t index[GW_MAX_CANDIDATES];                           /* the candidates that read */
  const int32_t *a[GW_MAX_CANDIDATES], *b[GW_MAX_CANDIDATES]; /* their fanins */
};

/* Where the inputs of a mixture stand at one position: a row of samples each. */
struct rows {
  const float *a[GW_MAX_CANDIDATES], *b[GW_MAX_CANDIDATES];
};
struct gradient_rows {
  float *a[GW_MAX_CANDIDATES], *b[GW_MAX_CANDIDATES];
};

INLINE void load_mixture(const struct gw_layer *l, const struct gate_sets *sets, int64_t n, int64_t k,
                         struct mixture *restrict m) {
  const int64_t width = l->coordinates;
  const int32_t *fanin = l->fanin + n * k * 2 * width;
  const uint8_t *restrict gate = l->gate + n * k;
  const float *restrict p = l->p + n * k;
  float c0[GW_MAX_CANDIDATES];
  for (int64_t i = 0; i < k; i++) {
    const int32_t f00 = gate[i] >> 3 & 1, f01 = gate[i] >> 2 & 1, f10 = gate[i] >> 1 & 1, f11 = gate[i] & 1;
    c0[i] = p[i] * (float)f00;
    m->ca[i] = p[i] * (float)(f10 - f00);
    m->cb[i] = p[i] * (float)(f01 - f00);
    m->cab[i] = p[i] * (float)(f00 - f01 - f10 + f11);
  }
  int64_t count = 0;
  for (int64_t i = 0; i < k; i++) {
    const uint32_t g = gate[i] & 15;
    m->index[count] = (int32_t)i;
    m->a[count] = fanin + (2 * i + (sets->ignore_a >> g & 1)) * width;
    m->b[count] = fanin + (2 * i + (~sets->ignore_b >> g & 1)) * width;
    count += sets->read >> g & 1;
  }
  m->count = count;
  m->constant = sum(c0, k);
}

/* e[i] = exp(below[i]), below[i] = weight[i] - largest, to the last bit or two: 2**n by the exponent, the rest by a
 * polynomial. Where e vanishes, below is cut off; NaN stays NaN. Both arrays are filled up to a whole vector. */
INLINE void exponentials(const float *restrict weight, float largest, float *restrict below, float *restrict e,
                         int64_t k) {
  for (int64_t i = 0; i < k; i++) below[i] = weight[i] - largest < -87.0f ? -87.0f : weight[i] - largest;
  for (int64_t i = k; i % LANES; i++) below[i] = 0;
  for (int64_t i = 0; i < k; i += LANES) {
    const vec x = *(const vec *)(below + i);
    const ivec n = __builtin_convertvector(x * 1.44269504f - 0.5f, ivec);
    const vec whole = __builtin_convertvector(n, vec), r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    vec value = r * (1.0f / 5040) + 1.0f / 720;
    value = value * r + 1.0f / 120;
    value = value * r + 1.0f / 24;
    value = value * r + 1.0f / 6;
    value = value * r + 0.5f;
    value = value * r + 1.0f;
    value = value * r + 1.0f;
    *(vec *)(e + i) = value * (vec)((n + 127) << 23);
  }
}

INLINE void softmax(const float *restrict weight, float *restrict p, int64_t k) {
  float below[GW_MAX_CANDIDATES], e[GW_MAX_CANDIDATES];
  exponentials(weight, maximum(weight, k), below, e, k);
  const float scale = 1 / sum(e, k);
  for (int64_t i = 0; i < k; i++) p[i] = e[i] * scale;
}

/* The first element of the row that a fanin names at output position (oy, ox); negative in the padding. */
static inline int64_t element(const struct gw_layer *l, const int32_t *fanin, int64_t oy, int64_t ox) {
  if (l->coordinates == 1) return fanin[0] * l->batch;
  const int64_t y = oy * l->stride - l->padding + fanin[1], x = ox * l->stride - l->padding + fanin[2];
  const bool inside = y >= 0 && y < l->height && x >= 0 && x < l->width;
  return inside ? ((fanin[0] * l->height + y) * l->width + x) * l->batch : -1;
}

/* ---- forward ---- */

#define MIX(T, COUNT)                                                                  \
  do {                                                                                 \
    T acc[COUNT];                                                                      \
    for (int v = 0; v < (COUNT); v++) acc[v] = (T){0} + m->constant;                   \
    for (int64_t j = 0; j < m->count; j++) {                                           \
      const T *a = (const T *)(at->a[j] + s), *b = (const T *)(at->b[j] + s);          \
      const int64_t i = m->index[j];                                                   \
      const float ca = m->ca[i], cb = m->cb[i], cab = m->cab[i];                       \
      for (int v = 0; v < (COUNT); v++) {                                              \
        acc[v] += cb * b[v];                                                           \
        acc[v] += a[v] * (cab * b[v] + ca);                                            \
      }                                                                                \
    }                                                                                  \
    for (int v = 0; v < (COUNT); v++) ((T *)(y + s))[v] = acc[v];                      \
  } while (0)

static inline void mix(const struct mixture *m, const struct rows *at, int64_t samples, float *y) {
  int64_t s = 0;
  for (; s + WIDE * LANES <= samples; s += WIDE * LANES) MIX(vec, WIDE);
  for (; s + LANES <= samples; s += LANES) MIX(vec, 1);
  for (; s < samples; s++) MIX(float, 1);
}

INLINE void forward(const struct gw_layer *l, const struct gw_piece *piece, const float *x, float *y, int64_t k) {
  const float zeros[BLOCK] = {0};
  const struct gate_sets sets = derive_sets();
  struct mixture m;
  struct rows at;
  for (int64_t n = piece->n0; n < piece->n1; n++) {
    softmax(l->weight + n * k, l->p + n * k, k);
    load_mixture(l, &sets, n, k, &m);
    for (int64_t oy = 0; oy < l->out_height; oy++)
      for (int64_t ox = 0; ox < l->out_width; ox++) {
        float *out = y + ((n * l->out_height + oy) * l->out_width + ox) * l->batch;
        for (int64_t s = piece->b0; s < piece->b1; s += BLOCK) {
          for (int64_t i = 0; i < m.count; i++) {
            const int64_t a = element(l, m.a[i], oy, ox), b = element(l, m.b[i], oy, ox);
            at.a[i] = a < 0 ? zeros : x + a + s;
            at.b[i] = b < 0 ? zeros : x + b + s;
          }
          mix(&m, &at, piece->b1 - s < BLOCK ? piece->b1 - s : BLOCK, out + s);
        }
      }
  }
}

/* The usual number of candidates is known to the compiler, which then unrolls what depends on it. */
void JOIN(gw_forward, GW_LEVEL)(const struct gw_layer *l, const struct gw_piece *piece, const float *x, float *y) {
  if (l->candidates == 16)
    forward(l, piece, x, y, 16);
  else
    forward(l, piece, x, y, l->candidates);
}

/* ---- backward ---- */

/* The sum over the lanes, by halves, so that it stays in registers. */
typedef float vec4 __attribute__((vector_size(16)));
typedef float vec8 __attribute__((vector_size(32)));
static inline float total(vec v) {
  vec4 quarter[LANES / 4];
  memcpy(quarter, &v, sizeof v);
#if defined(__AVX512F__)
  vec8 half[2];
  memcpy(half, &v, sizeof v);
  half[0] += half[1];
  memcpy(quarter, half, sizeof half[0]);
#endif
#if defined(__AVX2__)
  quarter[0] += quarter[1];
#endif
  return (quarter[0][0] + quarter[0][2]) + (quarter[0][1] + quarter[0][3]);
}
static inline float total_one(float v) { return v; }

/* With d = dy: the gate's slope towards a is d * (ca + cab*b), towards b it is d * (cb + cab*a), and the sum of
 * a * (slope towards a) + d * cb * b over samples is what the candidate contributed to the gradient for p. */
#define UNMIX(T, COUNT, TOTAL)                                                                \
  do {                                                                                        \
    const T *g = (const T *)(dy + s);                                                         \
    T d[COUNT], whole = (T){0};                                                               \
    for (int v = 0; v < (COUNT); v++) d[v] = g[v], whole += d[v];                             \
    *dy_sum += TOTAL(whole);                                                                  \
    for (int64_t j = 0; j < m->count; j++) {                                                  \
      const T *a = (const T *)(at->a[j] + s), *b = (const T *)(at->b[j] + s);                 \
      const int64_t i = m->index[j];                                                          \
      const float ca = m->ca[i], cb = m->cb[i], cab = m->cab[i];                              \
      T sum = (T){0};                                                                         \
      for (int v = 0; v < (COUNT); v++) {                                                     \
        const T av = a[v], bv = b[v], slope_a = d[v] * (cab * bv + ca), lone_b = d[v] * cb;   \
        sum += av * slope_a;                                                                  \
        sum += lone_b * bv;                                                                   \
        if (want_dx) {                                                                        \
          T *da = (T *)(to->a[j] + s), *db = (T *)(to->b[j] + s);                             \
          da[v] += slope_a;                                                                   \
          db[v] += d[v] * (cab * av + cb);                                                    \
        }                                                                                     \
      }                                                                                       \
      sums[i] += TOTAL(sum);                                                                  \
    }                                                                                         \
  } while (0)

INLINE void unmix(const struct mixture *m, const struct rows *at,
                                                        const struct gradient_rows *to, bool want_dx,
                                                        int64_t samples, const float *dy, float *sums,
                                                        float *dy_sum) {
  int64_t s = 0;
  for (; s + WIDE * LANES <= samples; s += WIDE * LANES) UNMIX(vec, WIDE, total);
  for (; s + LANES <= samples; s += LANES) UNMIX(vec, 1, total);
  for (; s < samples; s++) UNMIX(float, 1, total_one);
}

INLINE void backward(const struct gw_layer *l, const struct gw_piece *piece, const float *x, const float *dy,
                     float *dx, float *q, int64_t k, bool want_dx) {
  const float zeros[BLOCK] = {0};
  float lost[BLOCK] = {0}; /* gradients for the padding */
  const struct gate_sets sets = derive_sets();
  struct mixture m;
  struct rows at;
  struct gradient_rows to;
  float sums[GW_MAX_CANDIDATES];
  if (want_dx)
    for (int64_t row = 0; row < l->channels * l->height * l->width; row++)
      memset(dx + row * l->batch + piece->b0, 0, sizeof(float) * (size_t)(piece->b1 - piece->b0));
  for (int64_t n = piece->n0; n < piece->n1; n++) {
    float dy_sum = 0;
    load_mixture(l, &sets, n, k, &m);
    memset(sums, 0, sizeof(float) * (size_t)k);
    for (int64_t oy = 0; oy < l->out_height; oy++)
      for (int64_t ox = 0; ox < l->out_width; ox++) {
        const float *in = dy + ((n * l->out_height + oy) * l->out_width + ox) * l->batch;
        for (int64_t s = piece->b0; s < piece->b1; s += BLOCK) {
          for (int64_t i = 0; i < m.count; i++) {
            const int64_t a = element(l, m.a[i], oy, ox), b = element(l, m.b[i], oy, ox);
            at.a[i] = a < 0 ? zeros : x + a + s;
            at.b[i] = b < 0 ? zeros : x + b + s;
            if (want_dx) {
              to.a[i] = a < 0 ? lost : dx + a + s;
              to.b[i] = b < 0 ? lost : dx + b + s;
            }
          }
          unmix(&m, &at, &to, want_dx, piece->b1 - s < BLOCK ? piece->b1 - s : BLOCK, in + s, sums, &dy_sum);
        }
      }
    const uint8_t *restrict gate = l->gate + n * k;
    const float *restrict p = l->p + n * k;
    float *restrict row = q + n * k;
    for (int64_t i = 0; i < k; i++) row[i] = sums[i] + p[i] * dy_sum * (float)(gate[i] >> 3 & 1);
  }
}

void JOIN(gw_backward, GW_LEVEL)(const struct gw_layer *l, const struct gw_piece *piece, const float *x,
                                 const float *dy, float *dx, float *q) {
  const int64_t k = l->candidates;
  if (dx && k == 16)
    backward(l, piece, x, dy, dx, q, 16, true);
  else if (dx)
    backward(l, piece, x, dy, dx, q, k, true);
  else
    backward(l, piece, x, dy, NULL, q, k, false);
}

/* ---- Algorithm 1 ---- */

/* Philox4x32-10, as in draws.py: the counter is (index, stream, step), the key is the seed. */
static void philox(const struct gw_resample *r, uint32_t index, uint32_t word[4]) {
  uint32_t k0 = (uint32_t)r->seed, k1 = (uint32_t)(r->seed >> 32);
  uint32_t c0 = index, c1 = (uint32_t)r->stream, c2 = (uint32_t)r->step, c3 = (uint32_t)(r->step >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t first = (uint64_t)c0 * 0xD2511F53u, second = (uint64_t)c2 * 0xCD9E8D57u;
    c0 = (uint32_t)(second >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)second;
    c2 = (uint32_t)(first >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)first;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

static inline int32_t below(uint32_t word, int64_t size) { return (int32_t)((uint64_t)word * (uint64_t)size >> 32); }

static void draw_fanin(const struct gw_resample *r, int64_t n, uint32_t word, int32_t *fanin) {
  const int32_t drawn = below(word, r->size);
  if (r->groups) {
    fanin[0] = (int32_t)(n % r->groups * r->size) + drawn;
  } else if (r->width) {
    fanin[1] = drawn / (int32_t)r->width;
    fanin[2] = drawn % (int32_t)r->width;
  } else {
    fanin[0] = drawn;
  }
}

static float draw_normal(uint32_t first, uint32_t second) {
  const double radius = sqrt(-2 * log(((double)(first >> 4) + 0.5) / 268435456.0));
  return (float)(radius * cos(second * (6.283185307179586 / 4294967296.0)));
}

static void redraw(const struct gw_resample *r, int64_t n, int64_t keep, float *weight, int32_t *fanin,
                   uint8_t *gate) {
  const float leading = logf(r->reset * (float)(r->candidates - 1) / (1 - r->reset));
  for (int64_t i = 0; i < r->candidates; i++) {
    const int64_t at = n * r->candidates + i;
    if (i == keep) {
      weight[at] = leading;
      continue;
    }
    uint32_t word[4];
    philox(r, (uint32_t)at, word);
    gate[at] = word[0] & 15;
    for (int side = 0; side < 2; side++)
      draw_fanin(r, n, word[1 + side], fanin + (2 * at + side) * r->coordinates);
    weight[at] = keep < 0 && r->normal ? draw_normal(word[0], word[3]) : 0;
  }
}

INLINE void resample(const struct gw_resample *r, int64_t n0, int64_t n1, float *weight, int32_t *fanin, uint8_t *gate,
                     float *mean, int32_t *count, uint8_t *redrawn, int64_t k) {
  const float scale = 1 / logf((float)k);
  for (int64_t n = n0; n < n1; n++) {
    const float *w = weight + n * k;
    const float largest = maximum(w, k);
    float below[GW_MAX_CANDIDATES], e[GW_MAX_CANDIDATES], weighted[GW_MAX_CANDIDATES];
    exponentials(w, largest, below, e, k);
    for (int64_t i = 0; i < k; i++) weighted[i] = e[i] * below[i];
    const float whole = sum(e, k), h = (logf(whole) - sum(weighted, k) / whole) * scale, top = 1 / whole;

    if (isnan(mean[n])) mean[n] = h;
    count[n] = fabsf(mean[n] - h) <= r->stability ? count[n] + 1 : 0;
    mean[n] += (1 - r->momentum) * (h - mean[n]);
    redrawn[n] = 0;
    if (count[n] < r->patience) continue;
    count[n] = 0;
    if (top >= r->dominant) {
      redrawn[n] = 1;
      int64_t best = 0;
      while (w[best] < largest) best++;
      redraw(r, n, best, weight, fanin, gate);
    } else if (top <= r->dispersed) {
      redrawn[n] = 2;
      redraw(r, n, -1, weight, fanin, gate);
    }
  }
}

void JOIN(gw_resample, GW_LEVEL)(const struct gw_resample *r, int64_t n0, int64_t n1, float *weight, int32_t *fanin,
                                 uint8_t *gate, float *mean, int32_t *count, uint8_t *redrawn) {
  if (r->candidates == 16)
    resample(r, n0, n1, weight, fanin, gate, mean, count, redrawn, 16);
  else
    resample(r, n0, n1, weight, fanin, gate, mean, count, redrawn, r->candidates);
}
