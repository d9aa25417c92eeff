/* Plans and runs random circuits in exactly sized heap blocks, so that a sanitizer sees any step outside, and compares
 * every level with a plain evaluation, one sample and one gate at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gatewise.h"

static uint32_t state = 1;
static int64_t below(int64_t n) {
  state = state * 1664525u + 1013904223u;
  return (int64_t)((uint64_t)(state >> 4) * (uint64_t)n >> 28);
}
static void *block(int64_t bytes) { return malloc((size_t)(bytes ? bytes : 1)); }
static void must(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

/* Samples as the four kinds of rows; bit i of sample s is value[s, i] > 7. */
struct samples {
  int64_t count, inputs;
  uint8_t *value, *packed, *bytes;
  float *floats;
  double *doubles;
};

static struct samples make_samples(int64_t count, int64_t inputs) {
  const int64_t size = count * inputs, row = (inputs + 7) / 8;
  struct samples x = {count, inputs, block(size), block(count * row), block(size), block(4 * size), block(8 * size)};
  memset(x.packed, 0, (size_t)(count * row));
  for (int64_t i = 0; i < size; i++) {
    x.value[i] = (uint8_t)below(16);
    x.bytes[i] = x.value[i], x.floats[i] = x.value[i], x.doubles[i] = x.value[i];
    if (x.value[i] > 7) x.packed[i / inputs * row + i % inputs / 8] |= (uint8_t)(1 << (i % inputs % 8));
  }
  return x;
}

static void evaluate(const struct gw_circuit *c, const struct samples *x, int64_t sample, uint8_t *net) {
  net[0] = 0, net[1] = 1;
  for (int64_t i = 0; i < c->inputs; i++) net[2 + i] = x->value[sample * c->inputs + i] > 7;
  for (int64_t g = 0; g < c->gates; g++) {
    int row = 0;
    for (int64_t j = 0; j < c->k; j++) row = row << 1 | net[c->fanin[g * c->k + j]];
    net[2 + c->inputs + g] = c->table[g] >> ((1 << c->k) - 1 - row) & 1;
  }
}

static int check(int64_t inputs, int64_t gates, int64_t k, int64_t outputs, int64_t classes, int64_t count) {
  struct gw_circuit c = {.inputs = inputs, .gates = gates, .k = k, .outputs = outputs};
  uint64_t *table = block(8 * gates);
  int32_t *fanin = block(4 * k * gates), *shown = block(4 * outputs);
  for (int64_t g = 0; g < gates; g++) {
    table[g] = (uint64_t)below(1 << (1 << k));
    for (int64_t j = 0; j < k; j++) fanin[g * k + j] = (int32_t)below(2 + inputs + g);
  }
  for (int64_t i = 0; i < outputs; i++) shown[i] = (int32_t)below(2 + inputs + gates);
  c.table = table, c.fanin = fanin, c.output = shown;
  struct gw_program p = {.classes = classes, .run = block(8 * gates), .code = block(16 * gates),
                         .input_slot = block(4 * inputs), .output_slot = block(4 * outputs)};
  must(gw_plan(&c, &p) == GW_OK, "planning fails");
  p.run = realloc(p.run, (size_t)(p.runs ? 8 * p.runs : 1));
  p.code = realloc(p.code, (size_t)(p.code_length ? 4 * p.code_length : 1));

  struct samples x = make_samples(count, inputs);
  const int64_t wide = (inputs + 63) / 64 * 64, words = (outputs + 63) / 64, size = (outputs + classes - 1) / classes;
  uint8_t *threshold8 = block(wide), *net = block(2 + inputs + gates);
  float *threshold32 = block(4 * wide);
  double *threshold64 = block(8 * wide);
  uint64_t *always = calloc((size_t)(wide / 64 + 1), 8), *rows = block(8 * count * words);
  for (int64_t i = 0; i < wide; i++) threshold8[i] = 7, threshold32[i] = 7, threshold64[i] = 7;
  int32_t *counts = block(4 * count * classes);
  int64_t *found = block(8 * count);
  void *memory = aligned_alloc(64, (size_t)gw_state_bytes(&p));
  const void *row_of[] = {x.packed, x.bytes, x.floats, x.doubles};
  const void *threshold_of[] = {NULL, threshold8, threshold32, threshold64};
  const int64_t stride[] = {(inputs + 7) / 8, inputs, 4 * inputs, 8 * inputs};
  for (int level = GW_BASELINE; level <= gw_best_level(); level++)
    for (int kind = GW_PACKED; kind <= GW_FLOAT64; kind++) {
      const struct gw_source s = {kind, 1, inputs, threshold_of[kind], always};
      int bad = gw_run(&p, &s, row_of[kind], stride[kind], count, memory, GW_BITS, rows, level);
      bad |= gw_run(&p, &s, row_of[kind], stride[kind], count, memory, GW_COUNTS, counts, level);
      bad |= gw_run(&p, &s, row_of[kind], stride[kind], count, memory, GW_CLASSES, found, level);
      must(!bad, "running fails");
      for (int64_t b = 0; b < count; b++) {
        evaluate(&c, &x, b, net);
        int64_t best = 0;
        for (int64_t i = 0; i < outputs; i++)
          must((rows[b * words + i / 64] >> i % 64 & 1) == net[shown[i]], "an output differs");
        for (int64_t j = 0; j < classes; j++) {
          int32_t ones = 0;
          for (int64_t i = j * size; i < (j + 1) * size && i < outputs; i++) ones += net[shown[i]];
          must(counts[b * classes + j] == ones, "a count differs");
          if (ones > counts[b * classes + best]) best = j;
        }
        must(found[b] == best, "a class differs");
      }
    }
  const struct gw_source wrong = {GW_UINT8, 1, inputs + 1, threshold8, always}, s = {GW_FLOAT64, 1, inputs, threshold64, always};
  must(gw_run(&p, &wrong, x.bytes, inputs, count, memory, GW_BITS, rows, GW_BEST) == GW_BAD_SHAPE, "a shape is missed");
  must(gw_run(&p, &s, x.doubles, 8 * inputs, count, memory, GW_BITS, rows, 99) == GW_BAD_LEVEL, "a level is missed");
  if (count && inputs) {
    x.doubles[count * inputs - 1] = 1e308 * 10;
    must(gw_run(&p, &s, x.doubles, 8 * inputs, count, memory, GW_BITS, rows, GW_BEST) == GW_NOT_FINITE, "infinity is missed");
  }
  c.k = 4;
  must(gw_plan(&c, &p) == GW_BAD_SHAPE, "a wide gate is missed");
  free(table), free(fanin), free(shown), free(p.run), free(p.code), free(p.input_slot), free(p.output_slot);
  free(x.value), free(x.packed), free(x.bytes), free(x.floats), free(x.doubles), free(threshold8), free(threshold32);
  free(threshold64), free(net), free(always), free(rows), free(counts), free(found), free(memory);
  return 1;
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "overrun")) {
    uint8_t *three = block(3);
    volatile int beyond = 3;
    return three[beyond] > 2;
  }
  int cases = 0;
  const int64_t counts[] = {0, 1, 2, 63, 64, 65, 130, 513};
  for (int i = 0; i < 8; i++)
    for (int64_t k = 1; k <= 3; k++) cases += check(70, 200, k, 67, 5, counts[i]);
  for (int64_t inputs = 0; inputs < 130; inputs += 13) cases += check(inputs, 90, 2, inputs, 1 + inputs / 7, 70);
  cases += check(1100, 50, 2, 300, 2, 66);
  cases += check(3, 0, 3, 9, 3, 9);
  printf("%d cases checked\n", cases);
  return 0;
}
