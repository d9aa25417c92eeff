/* Running programs: argument checks and the choice of vector width; engine_kernels.c does the work. */
#include <stddef.h>

#include "engine.h"

int64_t gw_state_bytes(const struct gw_program *program) {
  return (program->slots + ROW_WORDS * BLOCK) * WIDEST_WORD;
}

static int check_source(const struct gw_program *p, const struct gw_source *s) {
  if (s->kind < GW_PACKED || s->kind > GW_FLOAT64 || s->planes < 1 || s->features < 0) return GW_BAD_SHAPE;
  if (s->kind == GW_PACKED && s->planes != 1) return GW_BAD_SHAPE;
  return s->planes * s->features == p->inputs ? GW_OK : GW_BAD_SHAPE;
}

int gw_run(const struct gw_program *p, const struct gw_source *source, const void *rows, int64_t stride, int64_t samples,
           void *state, int result, void *out, int level) {
  if (level == GW_BEST) level = gw_best_level();
  if (level < GW_BASELINE || level > gw_best_level()) return GW_BAD_LEVEL;
  if (check_source(p, source) != GW_OK || samples < 0 || p->slots < 1 || (uintptr_t)state % WIDEST_WORD)
    return GW_BAD_SHAPE;
  if (result < GW_CLASSES || result > GW_BITS || (result != GW_BITS && p->classes < 1)) return GW_BAD_SHAPE;
#if defined(__x86_64__)
  if (level == GW_AVX512) return gw_tiles_avx512(p, source, rows, stride, samples, state, result, out);
  if (level == GW_AVX2) return gw_tiles_avx2(p, source, rows, stride, samples, state, result, out);
#endif
  return gw_tiles_baseline(p, source, rows, stride, samples, state, result, out);
}
