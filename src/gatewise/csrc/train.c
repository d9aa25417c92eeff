/* Training on the CPU: argument checks and the choice of vector width; train_kernels.c does the work. */
#include <stdbool.h>
#include <stddef.h>

#include "gatewise.h"

#define DECLARE(LEVEL)                                                                                        \
  void gw_forward_##LEVEL(const struct gw_layer *, const struct gw_piece *, const float *, float *);          \
  void gw_backward_##LEVEL(const struct gw_layer *, const struct gw_piece *, const float *, const float *,    \
                           float *, float *);                                                                 \
  void gw_resample_##LEVEL(const struct gw_resample *, int64_t, int64_t, float *, int32_t *, uint8_t *,       \
                           float *, int32_t *, uint8_t *)
DECLARE(baseline);
#if defined(__x86_64__)
DECLARE(avx2);
DECLARE(avx512);
#endif

int gw_best_level(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw"))
    return GW_AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return GW_AVX2;
#endif
  return GW_BASELINE;
}

static int check_level(int *level) {
  if (*level == GW_BEST) *level = gw_best_level();
  return *level < GW_BASELINE || *level > gw_best_level() ? GW_BAD_LEVEL : GW_OK;
}

/* Shapes and the level; the caller vouches for the values in fanin. */
static int check(const struct gw_layer *l, const struct gw_piece *p, int *level) {
  if (check_level(level) != GW_OK) return GW_BAD_LEVEL;
  const bool dense = l->coordinates == 1;
  if (!dense && l->coordinates != 3) return GW_BAD_SHAPE;
  if (l->candidates < 1 || l->candidates > GW_MAX_CANDIDATES || l->batch < 0 || l->neurons < 0) return GW_BAD_SHAPE;
  if (dense && (l->height != 1 || l->width != 1 || l->out_height != 1 || l->out_width != 1)) return GW_BAD_SHAPE;
  if (l->channels < 0 || l->height < 0 || l->width < 0 || l->stride < 1 || l->padding < 0) return GW_BAD_SHAPE;
  if (p->n0 < 0 || p->n0 > p->n1 || p->n1 > l->neurons) return GW_BAD_SHAPE;
  if (p->b0 < 0 || p->b0 > p->b1 || p->b1 > l->batch) return GW_BAD_SHAPE;
  return GW_OK;
}

int gw_mix_forward(const struct gw_layer *layer, const struct gw_piece *piece, const float *x, float *y, int level) {
  const int status = check(layer, piece, &level);
  if (status != GW_OK) return status;
#if defined(__x86_64__)
  if (level == GW_AVX512) return gw_forward_avx512(layer, piece, x, y), GW_OK;
  if (level == GW_AVX2) return gw_forward_avx2(layer, piece, x, y), GW_OK;
#endif
  return gw_forward_baseline(layer, piece, x, y), GW_OK;
}

int gw_mix_backward(const struct gw_layer *layer, const struct gw_piece *piece, const float *x, const float *dy,
                    float *dx, float *q, int level) {
  const int status = check(layer, piece, &level);
  if (status != GW_OK) return status;
#if defined(__x86_64__)
  if (level == GW_AVX512) return gw_backward_avx512(layer, piece, x, dy, dx, q), GW_OK;
  if (level == GW_AVX2) return gw_backward_avx2(layer, piece, x, dy, dx, q), GW_OK;
#endif
  return gw_backward_baseline(layer, piece, x, dy, dx, q), GW_OK;
}

int gw_weight_gradient(int64_t neurons, int64_t candidates, int64_t pieces, const float *q, const float *p, float *dw) {
  if (neurons < 0 || candidates < 1 || pieces < 1) return GW_BAD_SHAPE;
  for (int64_t n = 0; n < neurons; n++) {
    float *row = dw + n * candidates, whole = 0;
    for (int64_t i = 0; i < candidates; i++) row[i] = q[n * candidates + i];
    for (int64_t piece = 1; piece < pieces; piece++)
      for (int64_t i = 0; i < candidates; i++) row[i] += q[(piece * neurons + n) * candidates + i];
    for (int64_t i = 0; i < candidates; i++) whole += row[i];
    for (int64_t i = 0; i < candidates; i++) row[i] -= p[n * candidates + i] * whole;
  }
  return GW_OK;
}

int gw_resample_rows(const struct gw_resample *rule, int64_t n0, int64_t n1, float *weight, int32_t *fanin,
                     uint8_t *gate, float *mean, int32_t *count, uint8_t *redrawn, int level) {
  if (check_level(&level) != GW_OK) return GW_BAD_LEVEL;
  if (rule->candidates < 2 || rule->candidates > GW_MAX_CANDIDATES || rule->size < 1) return GW_BAD_SHAPE;
  if (rule->coordinates != 1 && (rule->coordinates != 3 || (!rule->width && !rule->groups))) return GW_BAD_SHAPE;
  if (rule->coordinates == 1 && (rule->width || rule->groups)) return GW_BAD_SHAPE;
  if (n0 < 0 || n0 > n1 || n1 > rule->neurons || rule->patience < 1) return GW_BAD_SHAPE;
#if defined(__x86_64__)
  if (level == GW_AVX512)
    return gw_resample_avx512(rule, n0, n1, weight, fanin, gate, mean, count, redrawn), GW_OK;
  if (level == GW_AVX2) return gw_resample_avx2(rule, n0, n1, weight, fanin, gate, mean, count, redrawn), GW_OK;
#endif
  return gw_resample_baseline(rule, n0, n1, weight, fanin, gate, mean, count, redrawn), GW_OK;
}
