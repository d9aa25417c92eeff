/* Internal to the C core: circuits as networks of AND and XOR gates whose edges may be inverted.
 *
 * Node 0 is the constant 0, then come the inputs, then the gates, each after what it reads. A literal is twice a node,
 * plus 1 where it is inverted. A gate is an AND where its first fanin is the smaller literal, and otherwise an XOR,
 * whose fanins are never inverted. Equal gates are one node. Every gate of two inputs is such a gate up to inversions,
 * so that a network has as many gates as the smallest circuit of its structure.
 *
 * A table here has 64 bits and repeats itself over the inputs it does not have. Input v is 1 where VARIABLE[v] is set:
 * with the first input last, that is the order of gates.py.
 */
#ifndef GATEWISE_XAG_H
#define GATEWISE_XAG_H

#include <stdbool.h>
#include <stddef.h>

#include "gatewise.h"

struct xag {
  int64_t inputs, size, room, buckets;
  uint32_t (*fanin)[2]; /* [room] */
  int32_t *next;        /* [room] the next older node in the same bucket, or -1 */
  int32_t *head;        /* [buckets] */
  int64_t outputs;
  uint32_t *output; /* [outputs] literals */
};

/* Some nodes that a node depends on, in ascending order, and the node as a function of them. */
struct cut {
  uint64_t table;
  uint32_t sign; /* a bit for each leaf: what differs here differs */
  float cost;
  int32_t size, leaf[GW_MAX_INPUTS];
};

enum { CUTS = 8, MOST_GATES_A_TABLE = 64 };

/* The best cuts of a node, the best first; the cut of the node alone is not among them. */
struct cuts {
  int64_t count;
  struct cut cut[CUTS];
};

static const uint64_t VARIABLE[6] = {0x5555555555555555, 0x3333333333333333, 0x0f0f0f0f0f0f0f0f,
                                     0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0x00000000ffffffff};

static inline bool xag_is_gate(const struct xag *x, int64_t node) { return node > x->inputs; }
static inline bool xag_is_xor(const struct xag *x, int64_t node) { return x->fanin[node][0] > x->fanin[node][1]; }

/* The table with inputs v < w exchanged. */
static inline uint64_t table_swap(uint64_t table, int v, int w) {
  const int shift = (1 << w) - (1 << v);
  const uint64_t moved = ~VARIABLE[v] & VARIABLE[w];
  return (table & ~(moved | moved << shift)) | (table & moved) << shift | (table >> shift & moved);
}

static inline bool table_depends(uint64_t table, int v) { return ((table >> (1 << v) ^ table) & VARIABLE[v]) != 0; }

/* Load a circuit; release the network whatever is returned. */
int xag_load(struct xag *x, const struct gw_circuit *circuit, const uint64_t *library);
void xag_release(struct xag *x);

/* An empty network, and room for at least `more` gates, without which none may be built. */
int xag_init(struct xag *x, int64_t inputs, int64_t outputs, int64_t room);
int xag_reserve(struct xag *x, int64_t more);

uint32_t xag_and(struct xag *x, uint32_t a, uint32_t b);
uint32_t xag_xor(struct xag *x, uint32_t a, uint32_t b);

/* The function of four literals, by one of its ways in the library. */
uint32_t xag_build(struct xag *x, const uint64_t *library, uint32_t function, int way, const uint32_t *leaf);

/* Forget all nodes from `size` on, which must be the last that were made. */
void xag_truncate(struct xag *x, int64_t size);

/* Write the nodes that `used` marks as a circuit, each as the function that `chosen` gives, and an inverter for each
 * net that outputs show both ways. */
typedef void choose(const void *context, const struct xag *x, int64_t node, struct cut *cut);
int xag_store(const struct xag *x, const uint8_t *used, choose *chosen, const void *context,
              struct gw_netlist *netlist);

/* The best `CUTS` cuts of up to k leaves, from those of the two fanins; flow holds the cost of each node as a leaf. */
void cuts_merge(const struct xag *x, int64_t node, int k, const float *flow, struct cuts *cuts);

#endif
