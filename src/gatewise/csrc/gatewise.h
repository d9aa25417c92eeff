/* gatewise C core: plain C11, re-entrant, single-threaded; threads live in the caller.
 *
 * Sizes: N neurons, K candidates, B samples, C channels, H rows, W columns.
 * Activations are float32 with samples innermost: x is [C, H, W, B], y is [N, OH, OW, B]. A dense layer is
 * the case H = W = OH = OW = 1, where a fanin is the channel alone.
 * Circuits are the arrays of circuit/ir.py; a program is a circuit made ready to run on many samples at once.
 * Every function returns GW_OK or a negative status and touches nothing before it has checked shapes and spans; for the
 * values in fanin the caller vouches.
 */
#ifndef GATEWISE_H
#define GATEWISE_H

#include <stdint.h>

#if defined(__GNUC__)
#define GW_API __attribute__((visibility("default")))
#else
#define GW_API
#endif

enum gw_status {
  GW_OK = 0,
  GW_BAD_SHAPE = -1,
  GW_BAD_LEVEL = -2,
  GW_NO_MEMORY = -3,
  GW_NOT_FINITE = -4,
  GW_NO_ROOM = -5
};

/* Vector widths that one library holds; GW_BEST asks for the widest that this processor has. */
enum gw_level { GW_BEST = -1, GW_BASELINE = 0, GW_AVX2 = 1, GW_AVX512 = 2 };

enum { GW_MAX_CANDIDATES = 256 };

struct gw_layer {
  int64_t neurons, candidates, batch;
  int64_t channels, height, width, out_height, out_width;
  int64_t coordinates; /* a fanin is 1 number (dense) or 3: channel, row, column within the window */
  int64_t stride, padding;
  const int32_t *fanin; /* [N, K, 2, coordinates] */
  const uint8_t *gate;  /* [N, K] */
  const float *weight;  /* [N, K] */
  float *p;             /* [N, K] softmax of the weights: written by the forward pass, read by the backward pass */
};

/* A piece of the work that one thread does: neurons [n0, n1) on samples [b0, b1). */
struct gw_piece {
  int64_t n0, n1, b0, b1;
};

/* The widest level this processor has. */
GW_API int gw_best_level(void);

/* p = softmax(weight) and y = sum over candidates of p * gate(x[first], x[second]), for the piece. Pieces that run
 * at the same time must not share neurons. */
GW_API int gw_mix_forward(const struct gw_layer *layer, const struct gw_piece *piece, const float *x, float *y,
                          int level);

/* dx = the gradient for the inputs of the piece's samples, unless dx is null; q[n, i] = p * (gradient for p), summed
 * over the piece's samples and all positions. A piece must hold all neurons for dx to be whole; pieces that run at the
 * same time must not share samples, nor q. */
GW_API int gw_mix_backward(const struct gw_layer *layer, const struct gw_piece *piece, const float *x,
                           const float *dy, float *dx, float *q, int level);

/* The gradient for the weights, dw [N, K], from q of each piece, [pieces, N, K], and p. */
GW_API int gw_weight_gradient(int64_t neurons, int64_t candidates, int64_t pieces, const float *q, const float *p,
                              float *dw);

/* One step of Algorithm 1; kernels/reference.py defines it. */
struct gw_resample {
  int64_t neurons, candidates, coordinates;
  int64_t size, width, groups; /* what a fanin is drawn from: see wiring.Source */
  uint64_t seed, step;
  int64_t stream, patience, normal; /* normal: dispersed neurons restart from N(0, 1), else from zeros */
  float momentum, stability, dominant, dispersed, reset;
};

/* For neurons [n0, n1): weight and gate are [N, K], fanin is [N, K, 2, coordinates], mean is [N] (NaN before the
 * first step), count is int32 [N]; redrawn [N] becomes 0 (kept), 1 (dominated) or 2 (dispersed). */
GW_API int gw_resample_rows(const struct gw_resample *rule, int64_t n0, int64_t n1, float *weight, int32_t *fanin,
                            uint8_t *gate, float *mean, int32_t *count, uint8_t *redrawn, int level);

/* ---- circuits ---- */

/* Circuits: nets 0 and 1 are the constants, then come the inputs, then the gates, each after what it reads. A table
 * has a row for each value of the k inputs, row 0 in its highest bit, the first input as the highest digit of a row. */
enum { GW_MAX_INPUTS = 6, GW_FUNCTIONS = 1 << 15, GW_WAYS = 4 };

struct gw_circuit {
  int64_t inputs, gates, k, outputs;
  const uint64_t *table; /* [gates] */
  const int32_t *fanin;  /* [gates, k] */
  const int32_t *output; /* [outputs] */
};

/* What a pass writes: up to `room` gates of k inputs. Inputs that a gate does not need are its last and read net 0. */
struct gw_netlist {
  int64_t room, gates, k;
  uint64_t *table; /* [room] */
  int32_t *fanin;  /* [room, k] */
  int32_t *output; /* as many as the circuit has */
};

/* Fill library [GW_FUNCTIONS, GW_WAYS]: for each function of four inputs that is 0 where all are 0, by its table, ways
 * to make it of two functions with the fewest gates (as a formula). An entry holds the tables of the two in bits 0 to
 * 15 and 16 to 31, XOR instead of AND in bit 32, an inversion of the result in bit 33 and the gates needed from bit 40
 * on; entries that are not used are 0, and so are those of the constant and the inputs themselves. */
GW_API int gw_fill_library(uint64_t *library);

/* The circuit in gates of two inputs (netlist->k is 2). */
GW_API int gw_expand_luts(const struct gw_circuit *circuit, const uint64_t *library, struct gw_netlist *netlist);

/* The same, with cones of up to four leaves replaced wherever that saves gates, or as many stay if `even` is set. */
GW_API int gw_rewrite(const struct gw_circuit *circuit, const uint64_t *library, int even,
                      struct gw_netlist *netlist);

/* The circuit in as few gates of netlist->k inputs, 2 to 6, as priority cuts find. */
GW_API int gw_map_luts(const struct gw_circuit *circuit, const uint64_t *library, struct gw_netlist *netlist);

/* ---- programs ---- */

/* `count` gates of one operation, a table of three inputs whose first row is 0. */
struct gw_run {
  int32_t op, count;
};

/* The state has a slot for each value that is alive at a time; slot 0 is the constant 0. The code is, a gate, the slots
 * it reads (2 or 3, as its operation says) and the one it writes. Outputs follow each other, in equal groups a class. */
struct gw_program {
  int64_t inputs, outputs, classes;
  int64_t gates, runs, code_length, slots;
  struct gw_run *run;   /* [runs]; gw_plan needs room for a run a gate */
  uint32_t *code;       /* [code_length]; gw_plan needs room for four numbers a gate */
  int32_t *input_slot;  /* [inputs]; -1: nobody reads it */
  int32_t *output_slot; /* [outputs]: slot * 2 + inverted */
};

/* Fold, order and place a circuit of k <= 3: fills all of `program` but classes. */
GW_API int gw_plan(const struct gw_circuit *circuit, struct gw_program *program);

enum gw_kind { GW_PACKED = 0, GW_UINT8 = 1, GW_FLOAT32 = 2, GW_FLOAT64 = 3 };

/* Rows of samples, and how they become bits: packed rows have a bit an input, the lowest first; of the other kinds
 * input plane * features + f is the bit x[f] > threshold[plane, f], or 1 where a bit of `always` is set. */
struct gw_source {
  int64_t kind, planes, features;
  const void *threshold;  /* [planes, features rounded up to 64] of the kind's type */
  const uint64_t *always; /* [planes, features / 64 rounded up] */
};

enum gw_result {
  GW_CLASSES = 0, /* int64 [samples]: the class of the highest count, the lowest of equals */
  GW_COUNTS = 1,  /* int32 [samples, classes] */
  GW_BITS = 2     /* uint64 [samples, outputs / 64 rounded up]: rows of bits, the lowest first */
};

/* Bytes of memory that one call of gw_run works in, to be aligned to 64. */
GW_API int64_t gw_state_bytes(const struct gw_program *program);

/* Run the program on rows that are `stride` bytes apart; `state` is the caller's, and calls that run at the same time
 * need one each. */
GW_API int gw_run(const struct gw_program *program, const struct gw_source *source, const void *rows, int64_t stride,
                  int64_t samples, void *state, int result, void *out, int level);

#endif
