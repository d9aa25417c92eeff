/* Cones of up to four leaves replaced by what the library has for their functions, wherever that saves gates. */
#include <stdlib.h>
#include <string.h>

#include "xag.h"

/* The new network, with how often each node is read by gates in use, by outputs and by gates still to come. */
struct rewriter {
  struct xag x;
  const uint64_t *library;
  int even;
  int64_t room;
  int32_t *readers, *stack; /* [room] */
  struct cuts *cuts;        /* [room] */
};

static int reserve(struct rewriter *r, int64_t more) {
  const int status = xag_reserve(&r->x, more);
  if (status || r->room == r->x.room) return status;
  const size_t room = (size_t)r->x.room;
  void *readers = realloc(r->readers, sizeof *r->readers * room);
  if (readers) r->readers = readers;
  void *stack = realloc(r->stack, sizeof *r->stack * room);
  if (stack) r->stack = stack;
  void *cuts = realloc(r->cuts, sizeof *r->cuts * room);
  if (cuts) r->cuts = cuts;
  if (!readers || !stack || !cuts) return GW_NO_MEMORY;
  memset(r->readers + r->room, 0, sizeof *r->readers * (room - (size_t)r->room));
  r->room = (int64_t)room;
  return GW_OK;
}

/* Read a node so many times more (or less); → the gates that this makes needed (or not). */
static int64_t read_node(struct rewriter *r, int64_t node, int32_t change) {
  const int32_t before = r->readers[node];
  int64_t top = 0, count = 0;
  r->readers[node] += change;
  if ((change > 0 ? before : r->readers[node]) == 0 && xag_is_gate(&r->x, node)) r->stack[top++] = (int32_t)node;
  const int32_t one = change > 0 ? 1 : -1;
  while (top) {
    const uint32_t *fanin = r->x.fanin[r->stack[--top]];
    count++;
    for (int j = 0; j < 2; j++) {
      const int32_t below = (int32_t)(fanin[j] >> 1), was = r->readers[below];
      r->readers[below] += one;
      if ((change > 0 ? was : r->readers[below]) == 0 && xag_is_gate(&r->x, below)) r->stack[top++] = below;
    }
  }
  return count;
}

static void leaves_of(const struct cut *cut, uint32_t *leaf) {
  for (int v = 0; v < 4; v++) leaf[v] = v < cut->size ? 2 * (uint32_t)cut->leaf[v] : 0;
}

struct choice {
  int64_t gain; /* how many gates fewer there are */
  const struct cut *cut;
  int way;
};

/* Choose this cut if one of the ways to make its function gains more; the network stays as it is. */
static void consider(struct rewriter *r, int64_t node, const struct cut *cut, struct choice *choice) {
  const uint32_t function = cut->table & 0xffff;
  const uint64_t *ways = r->library + (int64_t)(function >> 15 ? function ^ 0xffff : function) * GW_WAYS;
  const int64_t size = r->x.size;
  const int32_t readers = r->readers[node];
  uint32_t leaf[4];
  leaves_of(cut, leaf);
  for (int v = 0; v < cut->size; v++) r->readers[cut->leaf[v]]++; /* so that what is counted ends at the leaves */
  const int64_t freed = read_node(r, node, -readers);
  for (int way = 0; way < GW_WAYS && (way == 0 || ways[way]) && freed > choice->gain; way++) {
    const int64_t made = xag_build(&r->x, r->library, function, way, leaf) >> 1;
    if (made != node) {
      const int64_t gain = freed - read_node(r, made, 1);
      read_node(r, made, -1);
      if (gain > choice->gain) *choice = (struct choice){gain, cut, way};
    }
    xag_truncate(&r->x, size);
  }
  read_node(r, node, readers);
  for (int v = 0; v < cut->size; v++) r->readers[cut->leaf[v]]--;
}

/* The best replacement of a gate that was just made; → the literal to read instead of it. */
static uint32_t replace(struct rewriter *r, int64_t node) {
  struct choice best = {.gain = r->even ? -1 : 0};
  for (int64_t i = 0; i < r->cuts[node].count; i++) consider(r, node, &r->cuts[node].cut[i], &best);
  if (!best.cut) return 2 * (uint32_t)node;
  const int64_t size = r->x.size;
  const int32_t readers = r->readers[node];
  uint32_t leaf[4];
  leaves_of(best.cut, leaf);
  const uint32_t made = xag_build(&r->x, r->library, best.cut->table & 0xffff, best.way, leaf);
  for (int64_t fresh = size; fresh < r->x.size; fresh++) cuts_merge(&r->x, fresh, 4, NULL, r->cuts);
  read_node(r, made >> 1, readers);
  read_node(r, node, -readers);
  return made;
}

/* Take over a gate of the old network, whose fanins have become `literal`s. */
static uint32_t take_over(struct rewriter *r, const struct xag *old, int64_t node, const uint32_t *literal,
                          int32_t readers) {
  const int64_t size = r->x.size;
  uint32_t fanin[2];
  for (int j = 0; j < 2; j++) fanin[j] = literal[old->fanin[node][j] >> 1] ^ (old->fanin[node][j] & 1);
  uint32_t made = xag_is_xor(old, node) ? xag_xor(&r->x, fanin[0], fanin[1]) : xag_and(&r->x, fanin[0], fanin[1]);
  read_node(r, made >> 1, readers);
  if (r->x.size > size) {
    cuts_merge(&r->x, size, 4, NULL, r->cuts);
    made = replace(r, size) ^ (made & 1);
  }
  for (int j = 0; j < 2; j++) read_node(r, fanin[j] >> 1, -1);
  return made;
}

/* How often outputs and gates that are needed read each node, [old->size]. */
static void count_readers(const struct xag *x, int32_t *readers) {
  memset(readers, 0, sizeof *readers * (size_t)x->size);
  for (int64_t i = 0; i < x->outputs; i++) readers[x->output[i] >> 1]++;
  for (int64_t node = x->size - 1; node > x->inputs; node--)
    for (int j = 0; j < 2 && readers[node]; j++) readers[x->fanin[node][j] >> 1]++;
}

static int rewrite(struct rewriter *r, const struct xag *old) {
  int32_t *readers = malloc(sizeof *readers * (size_t)old->size);
  uint32_t *literal = malloc(sizeof *literal * (size_t)old->size);
  int status = readers && literal ? GW_OK : GW_NO_MEMORY;
  if (!status) status = xag_init(&r->x, old->inputs, old->outputs, old->size);
  if (!status) status = reserve(r, MOST_GATES_A_TABLE);
  if (!status) {
    count_readers(old, readers);
    for (int64_t node = 0; node <= old->inputs; node++) {
      literal[node] = 2 * (uint32_t)node;
      r->readers[node] = readers[node];
      r->cuts[node].count = 0;
    }
  }
  for (int64_t node = 1 + old->inputs; node < old->size && !status; node++) {
    if (!readers[node]) continue;
    status = reserve(r, MOST_GATES_A_TABLE);
    if (!status) literal[node] = take_over(r, old, node, literal, readers[node]);
  }
  for (int64_t i = 0; i < old->outputs && !status; i++)
    r->x.output[i] = literal[old->output[i] >> 1] ^ (old->output[i] & 1);
  free(readers), free(literal);
  return status;
}

/* A gate as the function of its own two fanins. */
static void own_cut(const void *context, const struct xag *x, int64_t node, struct cut *cut) {
  (void)context;
  const uint32_t *fanin = x->fanin[node];
  const bool turned = fanin[0] > fanin[1];
  *cut = (struct cut){.size = 2, .leaf = {(int32_t)(fanin[turned] >> 1), (int32_t)(fanin[!turned] >> 1)}};
  const uint64_t a = VARIABLE[0] ^ (fanin[turned] & 1 ? UINT64_MAX : 0);
  const uint64_t b = VARIABLE[1] ^ (fanin[!turned] & 1 ? UINT64_MAX : 0);
  cut->table = xag_is_xor(x, node) ? a ^ b : a & b;
}

static int store(const struct xag *x, struct gw_netlist *netlist) {
  if (netlist->k != 2) return GW_BAD_SHAPE;
  int32_t *readers = malloc(sizeof *readers * (size_t)x->size);
  uint8_t *used = malloc((size_t)x->size);
  int status = readers && used ? GW_OK : GW_NO_MEMORY;
  if (!status) {
    count_readers(x, readers);
    for (int64_t node = 0; node < x->size; node++) used[node] = readers[node] > 0;
    status = xag_store(x, used, own_cut, NULL, netlist);
  }
  free(readers), free(used);
  return status;
}

int gw_expand_luts(const struct gw_circuit *circuit, const uint64_t *library, struct gw_netlist *netlist) {
  struct xag x;
  int status = xag_load(&x, circuit, library);
  if (!status) status = store(&x, netlist);
  xag_release(&x);
  return status;
}

int gw_rewrite(const struct gw_circuit *circuit, const uint64_t *library, int even, struct gw_netlist *netlist) {
  struct xag old;
  struct rewriter r = {.library = library, .even = even};
  int status = xag_load(&old, circuit, library);
  if (!status) status = rewrite(&r, &old);
  if (!status) status = store(&r.x, netlist);
  xag_release(&old), xag_release(&r.x);
  free(r.readers), free(r.stack), free(r.cuts);
  return status;
}
