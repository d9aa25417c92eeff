/* What engine.c and the levels of engine_kernels.c share. */
#ifndef GATEWISE_ENGINE_H
#define GATEWISE_ENGINE_H

#include "gatewise.h"

enum { WIDEST_WORD = 64 }; /* bytes of the widest word: 512 samples */
enum { ROW_WORDS = 16 };   /* words of 64 features that are read from a row at a time */
enum { BLOCK = 65 };       /* 64 rows of such words and one more, so that blocks do not fall into one set of the cache */

/* All samples, as many at a time as the level's word has bits. */
#define DECLARE_TILES(LEVEL)                                                                                  \
  int gw_tiles_##LEVEL(const struct gw_program *, const struct gw_source *, const void *, int64_t, int64_t,   \
                       void *, int, void *)
DECLARE_TILES(baseline);
#if defined(__x86_64__)
DECLARE_TILES(avx2);
DECLARE_TILES(avx512);
#endif

#endif
