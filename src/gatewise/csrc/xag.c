#include "xag.h"

#include <stdlib.h>
#include <string.h>

/* --- the library of functions of four inputs --- */

enum { FULL = 0xffff, XOR_BIT = 32, INVERT_BIT = 33, COST_SHIFT = 40, UNKNOWN = 255 };

static void offer(uint64_t *library, uint8_t *cost, uint16_t *order, int64_t *found, int now, uint32_t function,
                  uint64_t a, uint64_t b, uint64_t operation) {
  uint64_t *way = library + (int64_t)function * GW_WAYS;
  if (cost[function] == UNKNOWN) {
    cost[function] = (uint8_t)now;
    order[(*found)++] = (uint16_t)function;
  }
  if (cost[function] != now) return;
  for (int i = 0; i < GW_WAYS; i++)
    if (!way[i]) {
      way[i] = a | b << 16 | operation | (uint64_t)now << COST_SHIFT;
      return;
    }
}

int gw_fill_library(uint64_t *library) {
  uint8_t cost[GW_FUNCTIONS];
  uint16_t order[GW_FUNCTIONS]; /* by cost */
  int64_t begin[16] = {0}, found = 0;
  memset(library, 0, sizeof *library * GW_FUNCTIONS * GW_WAYS);
  memset(cost, UNKNOWN, sizeof cost);
  cost[0] = 0; /* not in the order: a constant makes nothing new */
  for (int v = 0; v < 4; v++) cost[order[found++] = VARIABLE[v] & FULL] = 0;
  for (int now = 1; found < GW_FUNCTIONS - 1; now++) {
    begin[now] = found;
    for (int left = 0; 2 * left < now; left++) {
      const int right = now - 1 - left;
      for (int64_t i = begin[left]; i < begin[left + 1]; i++)
        for (int64_t j = left == right ? i + 1 : begin[right]; j < begin[right + 1]; j++) {
          const uint32_t a = order[i], b = order[j];
          offer(library, cost, order, &found, now, a & b, a, b, 0);
          offer(library, cost, order, &found, now, a & ~b, a, b ^ FULL, 0);
          offer(library, cost, order, &found, now, ~a & b, a ^ FULL, b, 0);
          offer(library, cost, order, &found, now, a | b, a ^ FULL, b ^ FULL, 1ull << INVERT_BIT);
          offer(library, cost, order, &found, now, a ^ b, a, b, 1ull << XOR_BIT);
        }
    }
  }
  return GW_OK;
}

/* --- the network --- */

static int64_t bucket(const struct xag *x, uint32_t a, uint32_t b) {
  uint64_t key = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15;
  return (int64_t)(key >> 32) & (x->buckets - 1);
}

static void enter(struct xag *x, int64_t node) {
  int32_t *head = x->head + bucket(x, x->fanin[node][0], x->fanin[node][1]);
  x->next[node] = *head;
  *head = (int32_t)node;
}

int xag_init(struct xag *x, int64_t inputs, int64_t outputs, int64_t room) {
  *x = (struct xag){.inputs = inputs, .size = 1 + inputs, .outputs = outputs};
  if (inputs < 0 || inputs > INT32_MAX - 2 || outputs < 0 || room < 0) return GW_BAD_SHAPE;
  x->output = malloc(sizeof *x->output * (size_t)(outputs + 1));
  return x->output ? xag_reserve(x, room) : GW_NO_MEMORY;
}

int xag_reserve(struct xag *x, int64_t more) {
  if (x->size + more <= x->room) return GW_OK;
  const int64_t room = x->size + more + x->room / 2;
  if (room > INT32_MAX) return GW_NO_MEMORY;
  int64_t buckets = 64;
  while (buckets < room) buckets *= 2;
  void *fanin = realloc(x->fanin, sizeof *x->fanin * (size_t)room);
  if (fanin) x->fanin = fanin;
  void *next = realloc(x->next, sizeof *x->next * (size_t)room);
  if (next) x->next = next;
  void *head = realloc(x->head, sizeof *x->head * (size_t)buckets);
  if (head) x->head = head;
  if (!fanin || !next || !head) return GW_NO_MEMORY;
  x->room = room;
  x->buckets = buckets;
  memset(x->head, -1, sizeof *x->head * (size_t)buckets);
  for (int64_t node = 1 + x->inputs; node < x->size; node++) enter(x, node);
  return GW_OK;
}

void xag_release(struct xag *x) {
  free(x->fanin), free(x->next), free(x->head), free(x->output);
  *x = (struct xag){0};
}

static uint32_t gate(struct xag *x, uint32_t a, uint32_t b) {
  for (int32_t node = x->head[bucket(x, a, b)]; node >= 0; node = x->next[node])
    if (x->fanin[node][0] == a && x->fanin[node][1] == b) return 2 * (uint32_t)node;
  const int64_t node = x->size++;
  x->fanin[node][0] = a;
  x->fanin[node][1] = b;
  enter(x, node);
  return 2 * (uint32_t)node;
}

uint32_t xag_and(struct xag *x, uint32_t a, uint32_t b) {
  if (a == b) return a;
  if ((a ^ b) == 1) return 0;
  const uint32_t low = a < b ? a : b, high = a < b ? b : a;
  return low == 0 ? 0 : low == 1 ? high : gate(x, low, high);
}

uint32_t xag_xor(struct xag *x, uint32_t a, uint32_t b) {
  const uint32_t inverted = (a ^ b) & 1;
  a &= ~1u, b &= ~1u;
  if (a == b) return inverted;
  const uint32_t low = a < b ? a : b, high = a < b ? b : a;
  return (low == 0 ? high : gate(x, high, low)) ^ inverted;
}

void xag_truncate(struct xag *x, int64_t size) {
  while (x->size > size) {
    const int64_t node = --x->size;
    x->head[bucket(x, x->fanin[node][0], x->fanin[node][1])] = x->next[node];
  }
}

uint32_t xag_build(struct xag *x, const uint64_t *library, uint32_t function, int way, const uint32_t *leaf) {
  const uint32_t inverted = function >> 15;
  if (inverted) function ^= FULL;
  const uint64_t entry = library[(int64_t)function * GW_WAYS + way];
  if (!entry) {
    int v = 0;
    while (function && function != (VARIABLE[v] & FULL)) v++;
    return (function ? leaf[v] : 0) ^ inverted;
  }
  const uint32_t a = xag_build(x, library, entry & FULL, 0, leaf);
  const uint32_t b = xag_build(x, library, entry >> 16 & FULL, 0, leaf);
  const uint32_t made = entry >> XOR_BIT & 1 ? xag_xor(x, a, b) : xag_and(x, a, b);
  return made ^ inverted ^ (uint32_t)(entry >> INVERT_BIT & 1);
}

/* --- tables of five and six inputs --- */

/* How a table is split at its last input s: by a choice s ? high : low, or as low ^ s & (low ^ high) or
 * high ^ ~s & (low ^ high), with the gates that its two parts need. */
enum { CHOICE, FROM_LOW, FROM_HIGH };

struct split {
  int cost, input, kind;
  uint64_t low, high;
};

static struct split best_split(const uint64_t *library, uint64_t table, int n);

static int gates_of(const uint64_t *library, uint64_t table, int n) {
  if (n > 4) return best_split(library, table, n).cost;
  const uint32_t function = table & FULL;
  return (int)(library[(int64_t)(function >> 15 ? function ^ FULL : function) * GW_WAYS] >> COST_SHIFT);
}

static struct split best_split(const uint64_t *library, uint64_t table, int n) {
  struct split best = {.cost = UNKNOWN};
  for (int v = 0; v < n; v++) {
    const uint64_t turned = v < n - 1 ? table_swap(table, v, n - 1) : table;
    const int half = 1 << (n - 1);
    uint64_t high = turned & VARIABLE[n - 1], low = turned >> half & VARIABLE[n - 1];
    high |= high << half, low |= low << half;
    const int cost_low = gates_of(library, low, n - 1), cost_high = gates_of(library, high, n - 1);
    const int cost_both = gates_of(library, low ^ high, n - 1);
    const int costs[3] = {cost_low + cost_high + 3, cost_low + cost_both + 2, cost_high + cost_both + 2};
    for (int kind = 0; kind < 3; kind++)
      if (costs[kind] < best.cost) best = (struct split){costs[kind], v, kind, low, high};
  }
  return best;
}

static uint32_t build_wide(struct xag *x, const uint64_t *library, uint64_t table, int n, const uint32_t *leaf) {
  if (n <= 4) return xag_build(x, library, table & FULL, 0, leaf);
  const struct split split = best_split(library, table, n);
  uint32_t rest[GW_MAX_INPUTS];
  memcpy(rest, leaf, sizeof *leaf * (size_t)n);
  rest[split.input] = leaf[n - 1];
  const uint32_t s = leaf[split.input];
  const uint64_t base = split.kind == FROM_HIGH ? split.high : split.low;
  const uint32_t a = build_wide(x, library, base, n - 1, rest);
  if (split.kind == CHOICE) {
    const uint32_t b = build_wide(x, library, split.high, n - 1, rest);
    return xag_xor(x, a, xag_and(x, s, xag_xor(x, a, b)));
  }
  const uint32_t b = build_wide(x, library, split.low ^ split.high, n - 1, rest);
  return xag_xor(x, a, xag_and(x, s ^ (split.kind == FROM_HIGH), b));
}

/* --- circuits in and out --- */

int xag_load(struct xag *x, const struct gw_circuit *circuit, const uint64_t *library) {
  const int k = (int)circuit->k;
  *x = (struct xag){0};
  if (circuit->k < 1 || circuit->k > GW_MAX_INPUTS || circuit->gates < 0) return GW_BAD_SHAPE;
  int status = xag_init(x, circuit->inputs, circuit->outputs, circuit->gates + MOST_GATES_A_TABLE);
  if (status) return status;
  const int64_t first = 2 + circuit->inputs;
  uint32_t *literal = malloc(sizeof *literal * (size_t)(first + circuit->gates)); /* of each net */
  if (!literal) return GW_NO_MEMORY;
  literal[0] = 0, literal[1] = 1;
  for (int64_t i = 0; i < circuit->inputs; i++) literal[2 + i] = 2 * (uint32_t)(1 + i);
  for (int64_t g = 0; g < circuit->gates && !status; g++) {
    status = xag_reserve(x, MOST_GATES_A_TABLE);
    if (status) break;
    uint64_t table = circuit->table[g];
    for (int rows = 1 << k; rows < 64; rows *= 2) table |= table << rows;
    uint32_t leaf[GW_MAX_INPUTS] = {0};
    for (int v = 0; v < k; v++) leaf[v] = literal[circuit->fanin[g * k + k - 1 - v]];
    literal[first + g] = build_wide(x, library, table, k, leaf);
  }
  for (int64_t i = 0; i < circuit->outputs; i++) x->output[i] = status ? 0 : literal[circuit->output[i]];
  free(literal);
  return status;
}

/* The cut's table in the order of a netlist's gates: its leaves first, and then inputs that it does not need. */
static uint64_t ordered_table(const struct cut *cut, int k) {
  const int size = cut->size, unused = k - size;
  uint64_t table = cut->table;
  for (int v = 0; 2 * v + 1 < size; v++) table = table_swap(table, v, size - 1 - v);
  for (int v = size - 1; v >= 0 && unused; v--) table = table_swap(table, v, v + unused);
  return k == 6 ? table : table & ((1ull << (1 << k)) - 1);
}

static int write_gate(struct gw_netlist *netlist, const struct cut *cut, const int32_t *net) {
  const int k = (int)netlist->k;
  if (netlist->gates >= netlist->room) return GW_NO_ROOM;
  int32_t *fanin = netlist->fanin + netlist->gates * k;
  for (int j = 0; j < k; j++) fanin[j] = j < cut->size ? net[cut->leaf[j]] : 0;
  netlist->table[netlist->gates++] = ordered_table(cut, k);
  return GW_OK;
}

enum { SHOWN = 1, SHOWN_INVERTED = 2 };

static int store_gates(const struct xag *x, const uint8_t *used, choose *chosen, const void *context,
                       struct gw_netlist *netlist, const uint8_t *shown, int32_t *net) {
  for (int64_t node = 0; node <= x->inputs; node++) net[node] = node ? (int32_t)(node + 1) : 0;
  for (int64_t node = 1 + x->inputs; node < x->size; node++) {
    if (!used[node]) continue;
    struct cut cut;
    chosen(context, x, node, &cut);
    for (int v = 0; v < cut.size; v++)
      if (xag_is_gate(x, cut.leaf[v]) && shown[cut.leaf[v]] == SHOWN_INVERTED)
        cut.table = (cut.table & VARIABLE[v]) << (1 << v) | (cut.table >> (1 << v) & VARIABLE[v]);
    if (shown[node] == SHOWN_INVERTED) cut.table = ~cut.table;
    net[node] = (int32_t)(2 + x->inputs + netlist->gates);
    const int status = write_gate(netlist, &cut, net);
    if (status) return status;
  }
  return GW_OK;
}

/* A net that is shown both ways is stored as it is, and once more behind an inverter. */
static int store_outputs(const struct xag *x, struct gw_netlist *netlist, uint8_t *shown, const int32_t *net,
                         int32_t *inverter) {
  for (int64_t i = 0; i < x->outputs; i++) {
    const uint32_t node = x->output[i] >> 1;
    const bool inverted = x->output[i] & 1;
    if (node == 0) {
      netlist->output[i] = inverted;
    } else if (!inverted || (xag_is_gate(x, node) && shown[node] == SHOWN_INVERTED)) {
      netlist->output[i] = net[node];
    } else {
      if (!inverter[node]) {
        const struct cut invert = {.table = ~VARIABLE[0], .size = 1, .leaf = {(int32_t)node}};
        inverter[node] = (int32_t)(2 + x->inputs + netlist->gates);
        const int status = write_gate(netlist, &invert, net);
        if (status) return status;
      }
      netlist->output[i] = inverter[node];
    }
  }
  return GW_OK;
}

int xag_store(const struct xag *x, const uint8_t *used, choose *chosen, const void *context,
              struct gw_netlist *netlist) {
  int32_t *net = calloc((size_t)x->size * 2, sizeof *net);
  uint8_t *shown = calloc((size_t)x->size, 1);
  int status = net && shown ? GW_OK : GW_NO_MEMORY;
  netlist->gates = 0;
  if (!status) {
    for (int64_t i = 0; i < x->outputs; i++)
      shown[x->output[i] >> 1] |= x->output[i] & 1 ? SHOWN_INVERTED : SHOWN;
    status = store_gates(x, used, chosen, context, netlist, shown, net);
  }
  if (!status) status = store_outputs(x, netlist, shown, net, net + x->size);
  free(net), free(shown);
  return status;
}
