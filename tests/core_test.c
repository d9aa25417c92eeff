/* Runs the C core on odd shapes in exactly sized heap blocks, so that a sanitizer sees any step outside, and
 * compares every level with the baseline. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gatewise.h"

static uint32_t state = 1;
static uint32_t next(void) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}
static float *floats(int64_t n) {
  float *x = malloc(sizeof(float) * (size_t)n);
  for (int64_t i = 0; i < n; i++) x[i] = (float)next() / (float)(1 << 24);
  return x;
}
static void compare(const char *what, const float *a, const float *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(b[i])))) {
      fprintf(stderr, "%s differs at %lld: %g and %g\n", what, (long long)i, (double)a[i], (double)b[i]);
      exit(1);
    }
}

static int check(int64_t n, int64_t k, int64_t batch, int64_t c, int64_t side, int64_t window, int64_t stride,
                 int64_t padding) {
  const int64_t dense = window == 0, out = dense ? 1 : (side + 2 * padding - window) / stride + 1;
  const int64_t coordinates = dense ? 1 : 3, inputs = c * side * side * batch, outputs = n * out * out * batch;
  int32_t *fanin = malloc(sizeof(int32_t) * (size_t)(n * k * 2 * coordinates));
  uint8_t *gate = malloc((size_t)(n * k));
  for (int64_t i = 0; i < n * k; i++) gate[i] = next() & 15;
  for (int64_t i = 0; i < n * k * 2; i++) {
    fanin[i * coordinates] = (int32_t)(next() % (uint32_t)c);
    for (int64_t j = 1; j < coordinates; j++) fanin[i * 3 + j] = (int32_t)(next() % (uint32_t)window);
  }
  float *x = floats(inputs), *dy = floats(outputs), *weight = floats(n * k);
  float *y[2] = {floats(outputs), floats(outputs)}, *dx[2] = {floats(inputs), floats(inputs)};
  float *dw[2] = {floats(n * k), floats(n * k)}, *q = floats(2 * n * k), *p = floats(n * k);
  struct gw_layer layer = {.neurons = n, .candidates = k, .batch = batch, .channels = c, .height = side,
                           .width = side, .out_height = out, .out_width = out, .coordinates = coordinates,
                           .stride = stride, .padding = padding, .fanin = fanin, .gate = gate, .weight = weight,
                           .p = p};
  const int64_t cut = batch / 2;
  const struct gw_piece all = {0, n, 0, batch}, first = {0, n, 0, cut}, second = {0, n, cut, batch};
  for (int level = GW_BASELINE; level <= gw_best_level(); level++) {
    const int at = level > GW_BASELINE;
    int bad = gw_mix_forward(&layer, &all, x, y[at], level);
    bad |= gw_mix_backward(&layer, &first, x, dy, dx[at], q, level);
    bad |= gw_mix_backward(&layer, &second, x, dy, dx[at], q + n * k, level);
    bad |= gw_mix_backward(&layer, &first, x, dy, NULL, q, level);
    bad |= gw_weight_gradient(n, k, 2, q, p, dw[at]);
    if (bad) exit(2);
    if (!at) continue;
    compare("y", y[1], y[0], outputs);
    compare("dx", dx[1], dx[0], inputs);
    compare("dw", dw[1], dw[0], n * k);
  }
  if (k > 1) {
    const struct gw_resample rule = {.neurons = n, .candidates = k, .coordinates = coordinates,
                                     .size = dense ? c : window * window, .width = window, .seed = 3, .step = 5,
                                     .stream = 16, .patience = 1, .normal = 1, .momentum = 0.99f,
                                     .stability = 10, .dominant = 0.5f, .dispersed = 0.49f, .reset = 0.9f};
    float *mean = floats(n);
    int32_t *count = calloc((size_t)n, sizeof *count);
    uint8_t *redrawn = malloc((size_t)n);
    if (gw_resample_rows(&rule, 0, n, weight, fanin, gate, mean, count, redrawn, GW_BEST)) exit(3);
    if (gw_mix_forward(&layer, &all, x, y[0], GW_BEST)) exit(4); /* with the fanins just drawn */
    free(mean), free(count), free(redrawn);
  }
  layer.coordinates = 2;
  if (gw_mix_forward(&layer, &all, x, y[0], GW_BEST) != GW_BAD_SHAPE) exit(5);
  layer.coordinates = coordinates;
  if (gw_mix_forward(&layer, &all, x, y[0], 99) != GW_BAD_LEVEL) exit(6);
  for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]), free(dw[i]);
  free(fanin), free(gate), free(x), free(dy), free(weight), free(q), free(p);
  return 1;
}

/* Random words on the inputs, then each gate by its table: the outputs. */
static void simulate(const struct gw_circuit *c, uint64_t *out) {
  uint64_t *value = malloc(sizeof *value * (size_t)(2 + c->inputs + c->gates));
  value[0] = 0, value[1] = UINT64_MAX;
  for (int64_t i = 0; i < c->inputs; i++) value[2 + i] = 0x9e3779b97f4a7c15u * (uint64_t)(i * i + i + 41);
  for (int64_t g = 0; g < c->gates; g++) {
    uint64_t result = 0;
    for (int bit = 0; bit < 64; bit++) {
      int row = 0;
      for (int j = 0; j < c->k; j++) row = 2 * row + (int)(value[c->fanin[g * c->k + j]] >> bit & 1);
      result |= (c->table[g] >> ((1 << c->k) - 1 - row) & 1) << bit;
    }
    value[2 + c->inputs + g] = result;
  }
  for (int64_t i = 0; i < c->outputs; i++) out[i] = value[c->output[i]];
  free(value);
}

/* Every pass over cuts on a random circuit, in exactly sized blocks. */
static int check_passes(const uint64_t *library, int64_t inputs, int64_t gates, int64_t k, int64_t outputs) {
  uint64_t *table = malloc(sizeof *table * (size_t)gates);
  int32_t *fanin = malloc(sizeof *fanin * (size_t)(gates * k)), *output = malloc(sizeof *output * (size_t)outputs);
  for (int64_t g = 0; g < gates; g++) {
    table[g] = (uint64_t)next() << 48 ^ (uint64_t)next() << 24 ^ next();
    if (k < 6) table[g] &= (1ull << (1 << k)) - 1;
    for (int64_t j = 0; j < k; j++) fanin[g * k + j] = (int32_t)(next() % (uint32_t)(2 + inputs + g));
  }
  for (int64_t i = 0; i < outputs; i++) output[i] = (int32_t)(next() % (uint32_t)(2 + inputs + gates));
  const struct gw_circuit circuit = {inputs, gates, k, outputs, table, fanin, output};
  uint64_t *expected = malloc(sizeof *expected * (size_t)outputs), *found = malloc(sizeof *found * (size_t)outputs);
  simulate(&circuit, expected);
  const int64_t room = gates * 37;
  for (int pass = 0; pass < 8; pass++) {
    const int64_t wide = pass < 3 ? 2 : pass - 1;
    struct gw_netlist made = {room, 0, wide, malloc(8 * (size_t)room), malloc(4 * (size_t)(room * wide)),
                              malloc(4 * (size_t)outputs)};
    const int status = pass == 0  ? gw_expand_luts(&circuit, library, &made)
                       : pass < 3 ? gw_rewrite(&circuit, library, pass - 1, &made)
                                  : gw_map_luts(&circuit, library, &made);
    if (status) exit(7);
    const struct gw_circuit after = {inputs, made.gates, wide, outputs, made.table, made.fanin, made.output};
    simulate(&after, found);
    if (memcmp(found, expected, sizeof *found * (size_t)outputs)) exit(8);
    made.room = made.gates - 1;
    if (pass == 0 && made.gates && gw_expand_luts(&circuit, library, &made) != GW_NO_ROOM) exit(9);
    made.k = 7;
    if (gw_map_luts(&circuit, library, &made) != GW_BAD_SHAPE) exit(10);
    if (gw_rewrite(&circuit, library, 0, &made) != GW_BAD_SHAPE) exit(11);
    free(made.table), free(made.fanin), free(made.output);
  }
  free(table), free(fanin), free(output), free(expected), free(found);
  return 1;
}

int main(int argc, char **argv) {
  int cases = 0;
  if (argc > 1 && !strcmp(argv[1], "overrun")) {
    float *three = floats(3);
    volatile int beyond = 3;
    return three[beyond] > 2;
  }
  for (int64_t batch = 0; batch < 140; batch += batch < 20 ? 1 : 17) cases += check(5, 16, batch, 7, 1, 0, 1, 0);
  cases += check(1, 1, 1, 1, 1, 0, 1, 0);
  cases += check(3, GW_MAX_CANDIDATES, 33, 2, 1, 0, 1, 0);
  cases += check(2, 4, 300, 3, 1, 0, 1, 0);
  for (int64_t window = 1; window <= 5; window += 2)
    for (int64_t stride = 1; stride <= 2; stride++)
      for (int64_t padding = 0; padding <= 2; padding++) cases += check(4, 16, 21, 3, 6, window, stride, padding);
  uint64_t *library = malloc(sizeof *library * GW_FUNCTIONS * GW_WAYS);
  if (gw_fill_library(library)) exit(12);
  for (int64_t k = 1; k <= GW_MAX_INPUTS; k++)
    for (int64_t gates = 0; gates < 400; gates = 3 * gates + 1)
      cases += check_passes(library, gates % 9, gates, k, 1 + gates % 7);
  free(library);
  printf("%d cases checked\n", cases);
  return 0;
}
