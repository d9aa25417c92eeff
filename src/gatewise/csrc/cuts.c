/* Priority cuts, and circuits mapped to gates of k inputs with them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "xag.h"

/* --- the cuts of a node --- */

/* What a gate costs: fewest gates, and among them fewest inputs read. */
static float cost_of(int size) { return 1.0f + (float)size / 64.0f; }

static int count_bits(uint32_t bits) {
  bits -= bits >> 1 & 0x55555555;
  bits = (bits & 0x33333333) + (bits >> 2 & 0x33333333);
  return (int)(((bits + (bits >> 4)) & 0x0f0f0f0f) * 0x01010101u >> 24);
}

static bool join(const struct cut *a, const struct cut *b, int k, struct cut *joined) {
  int i = 0, j = 0, n = 0;
  while (i < a->size || j < b->size) {
    if (n == k) return false;
    const int32_t left = i < a->size ? a->leaf[i] : INT32_MAX, right = j < b->size ? b->leaf[j] : INT32_MAX;
    joined->leaf[n++] = left < right ? left : right;
    i += left <= right, j += right <= left;
  }
  joined->size = n;
  joined->sign = a->sign | b->sign;
  return true;
}

static bool contains(const struct cut *whole, const struct cut *part) {
  if (part->size > whole->size || part->sign & ~whole->sign) return false;
  int i = 0;
  for (int j = 0; j < whole->size && i < part->size; j++) i += part->leaf[i] == whole->leaf[j];
  return i == part->size;
}

/* Put a cut in its place, unless it contains another or is worse than all; those that contain it go. */
static void insert(struct cuts *cuts, const struct cut *cut) {
  int64_t kept = 0, place;
  for (int64_t i = 0; i < cuts->count; i++)
    if (contains(cut, &cuts->cut[i])) return;
  for (int64_t i = 0; i < cuts->count; i++)
    if (!contains(&cuts->cut[i], cut)) {
      if (kept < i) cuts->cut[kept] = cuts->cut[i];
      kept++;
    }
  if (kept == CUTS && cut->cost < cuts->cut[CUTS - 1].cost) kept--;
  cuts->count = kept;
  if (kept == CUTS) return;
  for (place = kept; place > 0 && cut->cost < cuts->cut[place - 1].cost; place--)
    cuts->cut[place] = cuts->cut[place - 1];
  cuts->cut[place] = *cut;
  cuts->count++;
}

/* The table over the leaves of `from`, over those of `to`. */
static uint64_t stretch(uint64_t table, const struct cut *from, const struct cut *to) {
  for (int v = from->size - 1, w = to->size - 1; v >= 0; v--, w--) {
    while (to->leaf[w] != from->leaf[v]) w--;
    if (v < w) table = table_swap(table, v, w);
  }
  return table;
}

static struct cut alone(int64_t node) {
  return (struct cut){.table = VARIABLE[0], .sign = 1u << (node & 31), .size = 1, .leaf = {(int32_t)node}};
}

/* Without the leaves that its table does not depend on. */
static void shrink(struct cut *cut) {
  int kept = 0;
  for (int v = 0; v < cut->size; v++) {
    if (!table_depends(cut->table, v)) continue;
    if (kept < v) cut->table = table_swap(cut->table, kept, v);
    cut->leaf[kept++] = cut->leaf[v];
  }
  if (kept == cut->size) return;
  cut->size = kept;
  cut->sign = 0;
  for (int v = 0; v < kept; v++) cut->sign |= 1u << (cut->leaf[v] & 31);
}

/* The cut of the node alone is number 0 of its cuts; the others follow. */
static const struct cut *number(const struct cuts *cuts, const struct cut *self, int64_t i) {
  return i ? &cuts->cut[i - 1] : self;
}

void cuts_merge(const struct xag *x, int64_t node, int k, const float *flow, struct cuts *cuts) {
  const uint32_t *fanin = x->fanin[node];
  const struct cuts *below[2] = {&cuts[fanin[0] >> 1], &cuts[fanin[1] >> 1]};
  const struct cut self[2] = {alone(fanin[0] >> 1), alone(fanin[1] >> 1)};
  struct cuts *own = &cuts[node];
  float worst = INFINITY; /* what a cut has to beat: it costs no less than either of the two that it joins */
  own->count = 0;
  for (int64_t i = 0; i <= below[0]->count; i++) {
    const struct cut *a = number(below[0], &self[0], i);
    if (a->cost >= worst) break;
    for (int64_t j = 0; j <= below[1]->count; j++) {
      const struct cut *b = number(below[1], &self[1], j);
      struct cut joined;
      if (b->cost >= worst) break;
      if (count_bits(a->sign | b->sign) > k || !join(a, b, k, &joined)) continue;
      joined.cost = cost_of(joined.size);
      for (int v = 0; v < joined.size && flow; v++) joined.cost += flow[joined.leaf[v]];
      if (joined.cost >= worst) continue;
      joined.table = (uint64_t)(i * (CUTS + 1) + j); /* which two, until it is known which cuts stay */
      insert(own, &joined);
      worst = own->count == CUTS ? own->cut[CUTS - 1].cost : INFINITY;
    }
  }
  for (int64_t n = 0; n < own->count; n++) {
    struct cut *cut = &own->cut[n];
    const struct cut *a = number(below[0], &self[0], (int64_t)cut->table / (CUTS + 1));
    const struct cut *b = number(below[1], &self[1], (int64_t)cut->table % (CUTS + 1));
    const uint64_t left = stretch(a->table, a, cut) ^ (fanin[0] & 1 ? UINT64_MAX : 0);
    const uint64_t right = stretch(b->table, b, cut) ^ (fanin[1] & 1 ? UINT64_MAX : 0);
    cut->table = xag_is_xor(x, node) ? left ^ right : left & right;
    shrink(cut);
  }
}

/* --- a cover: the gates of the mapped circuit --- */

struct cover {
  const struct xag *x;
  int k;
  struct cuts *cuts; /* [nodes] the first cut of a node is the chosen one */
  int32_t *readers;  /* [nodes] how many gates of the cover and outputs read the node */
  int32_t *stack;    /* [nodes] */
  float *flow;       /* [nodes] the cost of a node as a leaf */
  float *share;      /* [nodes] among how many readers its cost is expected to be shared */
};

/* Choose the cuts of least area flow, new cuts being ranked by it too. */
static void choose_by_flow(struct cover *cover, bool keep) {
  const struct xag *x = cover->x;
  for (int64_t node = 1 + x->inputs; node < x->size; node++) {
    struct cuts *own = &cover->cuts[node];
    struct cut before = own->cut[0];
    cuts_merge(x, node, cover->k, cover->flow, cover->cuts);
    if (keep) {
      before.cost = cost_of(before.size);
      for (int v = 0; v < before.size; v++) before.cost += cover->flow[before.leaf[v]];
      insert(own, &before);
    }
    cover->flow[node] = own->cut[0].cost / cover->share[node];
  }
}

/* Which nodes the chosen cuts make gates, and how often each is read. */
static void count_readers(struct cover *cover) {
  const struct xag *x = cover->x;
  memset(cover->readers, 0, sizeof *cover->readers * (size_t)x->size);
  for (int64_t i = 0; i < x->outputs; i++) cover->readers[x->output[i] >> 1]++;
  for (int64_t node = x->size - 1; node > x->inputs; node--) {
    const struct cut *cut = &cover->cuts[node].cut[0];
    for (int v = 0; v < cut->size && cover->readers[node]; v++) cover->readers[cut->leaf[v]]++;
  }
}

/* Read the leaves of a cut once more (or less); → the cost of the gates that this makes needed (or not). */
static float read_leaves(struct cover *cover, const struct cut *cut, int32_t change) {
  float cost = cost_of(cut->size);
  int64_t top = 0;
  for (;;) {
    for (int v = 0; v < cut->size; v++) {
      const int32_t leaf = cut->leaf[v], before = cover->readers[leaf];
      cover->readers[leaf] += change;
      if ((change > 0 ? before : cover->readers[leaf]) == 0 && xag_is_gate(cover->x, leaf)) cover->stack[top++] = leaf;
    }
    if (top == 0) return cost;
    cut = &cover->cuts[cover->stack[--top]].cut[0];
    cost += cost_of(cut->size);
  }
}

/* Choose for each node the cut that makes the cover cheapest, all other choices staying; one that is as cheap is taken
 * too, since a later round may gain from it. New leaves are counted before the old ones go, so that what both need is
 * not walked through. */
static void choose_exactly(struct cover *cover) {
  const struct xag *x = cover->x;
  for (int64_t node = 1 + x->inputs; node < x->size; node++) {
    struct cuts *own = &cover->cuts[node];
    const bool used = cover->readers[node] > 0;
    if (!used) read_leaves(cover, &own->cut[0], 1);
    for (int64_t i = 1; i < own->count; i++) {
      const float added = read_leaves(cover, &own->cut[i], 1);
      const float freed = read_leaves(cover, &own->cut[0], -1);
      if (added <= freed) {
        const struct cut better = own->cut[i];
        own->cut[i] = own->cut[0];
        own->cut[0] = better;
      } else {
        read_leaves(cover, &own->cut[0], 1);
        read_leaves(cover, &own->cut[i], -1);
      }
    }
    if (!used) read_leaves(cover, &own->cut[0], -1);
  }
}

enum { FLOW_ROUNDS = 2, EXACT_ROUNDS = 3 };

static void map(struct cover *cover) {
  const struct xag *x = cover->x;
  for (int64_t node = 1 + x->inputs; node < x->size; node++)
    for (int j = 0; j < 2; j++) cover->share[x->fanin[node][j] >> 1] += 1;
  for (int64_t i = 0; i < x->outputs; i++) cover->share[x->output[i] >> 1] += 1;
  for (int64_t node = 0; node < x->size; node++) cover->share[node] = fmaxf(cover->share[node], 1);
  for (int round = 0; round < FLOW_ROUNDS; round++) {
    choose_by_flow(cover, round > 0);
    count_readers(cover);
    for (int64_t node = 0; node < x->size; node++)
      cover->share[node] = fmaxf(1, (cover->share[node] + 2 * (float)cover->readers[node]) / 3);
  }
  for (int round = 0; round < EXACT_ROUNDS; round++) choose_exactly(cover);
}

static void chosen_cut(const void *context, const struct xag *x, int64_t node, struct cut *cut) {
  (void)x;
  *cut = ((const struct cuts *)context)[node].cut[0];
}

int gw_map_luts(const struct gw_circuit *circuit, const uint64_t *library, struct gw_netlist *netlist) {
  struct xag x;
  if (netlist->k < 2 || netlist->k > GW_MAX_INPUTS) return GW_BAD_SHAPE;
  int status = xag_load(&x, circuit, library);
  if (!status) {
    const size_t nodes = (size_t)x.size;
    struct cover cover = {&x, (int)netlist->k, calloc(nodes, sizeof *cover.cuts), malloc(nodes * 4),
                          malloc(nodes * 4), calloc(nodes, sizeof(float)), calloc(nodes, sizeof(float))};
    uint8_t *used = malloc(nodes);
    status = cover.cuts && cover.readers && cover.stack && cover.flow && cover.share && used ? GW_OK : GW_NO_MEMORY;
    if (!status) {
      map(&cover);
      count_readers(&cover);
      for (size_t node = 0; node < nodes; node++) used[node] = cover.readers[node] > 0;
      status = xag_store(&x, used, chosen_cut, cover.cuts, netlist);
    }
    free(cover.cuts), free(cover.readers), free(cover.stack), free(cover.flow), free(cover.share), free(used);
  }
  xag_release(&x);
  return status;
}
