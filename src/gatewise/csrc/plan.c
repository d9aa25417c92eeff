/* From a circuit to a program: which gates run, in which order, and which slot of the state each value lives in. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gatewise.h"

/* A gate of three inputs is a table of eight rows, row 0 the most significant bit: the rows in which input j is 1, and
 * how far they lie from those in which it is 0. */
static const uint8_t ONES[3] = {0x0f, 0x33, 0x55}, STEP[3] = {4, 2, 1};

static uint8_t both(uint8_t half, int j) { return (uint8_t)(half | half << STEP[j]); }
static uint8_t at_one(uint8_t t, int j) { return both(t & ONES[j], j); }
static uint8_t at_zero(uint8_t t, int j) { return both(t >> STEP[j] & ONES[j], j); }
static bool depends(uint8_t t, int j) { return at_one(t, j) != at_zero(t, j); }
static uint8_t choose(uint8_t one, uint8_t zero, int j) { return (uint8_t)((one & ONES[j]) | (zero & ~ONES[j])); }

/* The table of the gate whose input j is what was input order[j]. */
static uint8_t permute(uint8_t t, const uint8_t order[3]) {
  uint8_t result = 0;
  for (int row = 0; row < 8; row++) {
    int from = 0;
    for (int j = 0; j < 3; j++)
      if (row >> (2 - j) & 1) from |= 1 << (2 - order[j]);
    result |= (uint8_t)((t >> (7 - from) & 1) << (7 - row));
  }
  return result;
}

static const uint8_t ORDERS[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* For each table the order of inputs that makes it smallest: fewer different tables are longer runs of one. An input
 * that is ignored comes last. */
struct canon {
  uint8_t table[256], order[256];
};

static void fill_canon(struct canon *canon) {
  for (int t = 0; t < 256; t++) {
    int best = -1;
    for (int o = 0; o < 6; o++) {
      const uint8_t candidate = permute((uint8_t)t, ORDERS[o]);
      const int ignored = !depends(candidate, 2) ? 0 : !depends(candidate, 0) || !depends(candidate, 1) ? 512 : 256;
      if (best >= 0 && candidate + ignored >= best) continue;
      best = candidate + ignored;
      canon->table[t] = candidate;
      canon->order[t] = (uint8_t)o;
    }
  }
}

struct node {
  uint32_t fanin[3];
  uint8_t op; /* the table, 0 in its first row */
  uint8_t arity;
};

/* A value is a net in one of two polarities: net * 2 + inverted. Net 0 is the constant 0. */
struct planner {
  int64_t first, nets;
  struct node *node;   /* [gates] */
  uint32_t *value;     /* [nets] what a net of the circuit is once wires and inverters are gone */
  uint32_t *level;     /* [nets] */
  uint32_t *uses;      /* [nets] how often a net is still to be read */
  uint32_t *place;     /* [nets] when it is computed; then its slot */
  uint32_t *slot;      /* [nets] */
  uint64_t *key;       /* [gates] */
  uint64_t *spare;     /* [gates] */
  int64_t *start;      /* [gates + 2] first gate of each level */
};

/* Fold what is constant, repeated, ignored or inverted; → the value of the gate. */
static uint32_t reduce(struct planner *p, const struct canon *canon, int64_t gate, uint8_t t, const uint32_t in[3]) {
  uint32_t fanin[3];
  for (int j = 0; j < 3; j++) {
    if (in[j] & 1) t = choose(at_zero(t, j), at_one(t, j), j);
    fanin[j] = in[j] >> 1;
    if (fanin[j] == 0) t = at_zero(t, j);
  }
  for (int j = 1; j < 3; j++)
    for (int i = 0; i < j; i++)
      if (fanin[i] == fanin[j] && depends(t, j)) t = choose(at_one(t, j), at_zero(t, j), i);
  const uint32_t inverted = t >> 7;
  if (inverted) t = (uint8_t)~t;
  if (t == 0) return inverted;
  struct node *node = p->node + gate;
  const uint8_t *order = ORDERS[canon->order[t]];
  node->op = canon->table[t];
  node->arity = 0;
  for (int j = 0; j < 3; j++) {
    node->fanin[j] = fanin[order[j]];
    node->arity += depends(node->op, j);
  }
  if (node->arity == 1) return node->fanin[0] << 1 | inverted; /* 0 in its first row: it passes its input on */
  return (uint32_t)(p->first + gate) << 1 | inverted;
}

static void read_gates(struct planner *p, const struct gw_circuit *c) {
  struct canon canon;
  fill_canon(&canon);
  for (int64_t net = 0; net < p->first; net++) p->value[net] = net == 1 ? 1 : (uint32_t)net << 1;
  for (int64_t g = 0; g < c->gates; g++) {
    const int32_t *fanin = c->fanin + g * c->k;
    uint32_t in[3] = {0, 0, 0};
    for (int64_t j = 0; j < c->k; j++) in[j] = p->value[fanin[j]];
    uint8_t t = (uint8_t)c->table[g];
    for (int64_t j = c->k; j < 3; j++) { /* an input that is ignored: every row twice */
      uint8_t wide = 0;
      for (int row = 0; row < 1 << j; row++) wide |= (uint8_t)((t >> ((1 << j) - 1 - row) & 1) * 3 << (2 * ((1 << j) - 1 - row)));
      t = wide;
    }
    p->value[p->first + g] = reduce(p, &canon, g, t, in);
  }
}

/* Which gates the outputs need, how often each value is read, and the level of each gate; → how many levels. */
static int64_t find_needed(struct planner *p, const struct gw_circuit *c) {
  for (int64_t i = 0; i < c->outputs; i++) p->uses[p->value[c->output[i]] >> 1]++;
  for (int64_t g = c->gates - 1; g >= 0; g--) {
    if (p->uses[p->first + g] == 0) continue;
    const struct node *node = p->node + g;
    for (int j = 0; j < node->arity; j++) p->uses[node->fanin[j]]++;
  }
  int64_t deepest = 0;
  for (int64_t g = 0; g < c->gates; g++) {
    if (p->uses[p->first + g] == 0) continue;
    const struct node *node = p->node + g;
    uint32_t level = 0;
    for (int j = 0; j < node->arity; j++)
      if (p->level[node->fanin[j]] > level) level = p->level[node->fanin[j]];
    p->level[p->first + g] = level + 1;
    if (level + 1 > deepest) deepest = level + 1;
  }
  return deepest;
}

/* Sort keys by their upper 32 bits, a byte at a time, leaving out bytes that are all alike. */
static void sort_keys(uint64_t *key, uint64_t *spare, int64_t count) {
  uint64_t differ = 0;
  for (int64_t i = 0; i < count; i++) differ |= key[i] ^ key[0];
  uint64_t *from = key, *to = spare;
  for (int shift = 32; shift < 64; shift += 8) {
    if (!(differ >> shift & 255)) continue;
    int64_t first[257] = {0};
    for (int64_t i = 0; i < count; i++) first[(from[i] >> shift & 255) + 1]++;
    for (int d = 0; d < 256; d++) first[d + 1] += first[d];
    for (int64_t i = 0; i < count; i++) to[first[from[i] >> shift & 255]++] = from[i];
    uint64_t *other = from;
    from = to;
    to = other;
  }
  if (from != key) memcpy(key, from, sizeof *key * (size_t)count);
}

/* Slots that are free, the one that was freed last on top: its value has just been read, so it is in the cache. */
struct slots {
  uint32_t *free;
  int64_t count, used;
};

static uint32_t take_slot(struct slots *slots) {
  return slots->count ? slots->free[--slots->count] : (uint32_t)slots->used++;
}

/* Write the gates of one level as runs of equal operation; gates of a run follow their first inputs through memory. */
static void write_level(struct planner *p, struct slots *slots, uint64_t *key, int64_t count, int64_t *at,
                        uint32_t **code, struct gw_program *plan) {
  for (int64_t i = 0; i < count; i++) {
    const struct node *node = p->node + key[i];
    uint32_t place = p->place[node->fanin[0]];
    key[i] |= (uint64_t)node->op << 57 | (uint64_t)(place & 0x1ffffff) << 32;
  }
  sort_keys(key, p->spare, count);
  for (int64_t i = 0; i < count; i++) {
    const int64_t gate = (int64_t)(uint32_t)key[i], net = p->first + gate;
    const struct node *node = p->node + gate;
    if (!plan->runs || plan->run[plan->runs - 1].op != node->op) plan->run[plan->runs++] = (struct gw_run){node->op, 0};
    plan->run[plan->runs - 1].count++;
    for (int j = 0; j < node->arity; j++) *(*code)++ = p->slot[node->fanin[j]];
    for (int j = node->arity - 1; j >= 0; j--)
      if (--p->uses[node->fanin[j]] == 0) slots->free[slots->count++] = p->slot[node->fanin[j]];
    p->slot[net] = take_slot(slots);
    p->place[net] = (uint32_t)(*at)++;
    *(*code)++ = p->slot[net];
  }
}

static void schedule(struct planner *p, const struct gw_circuit *c, int64_t levels, struct slots *slots,
                     struct gw_program *plan) {
  memset(p->start, 0, sizeof *p->start * (size_t)(levels + 2));
  for (int64_t g = 0; g < c->gates; g++)
    if (p->uses[p->first + g]) p->start[p->level[p->first + g] + 1]++;
  for (int64_t l = 0; l <= levels; l++) p->start[l + 1] += p->start[l];
  for (int64_t g = 0; g < c->gates; g++)
    if (p->uses[p->first + g]) p->key[p->start[p->level[p->first + g]]++] = (uint64_t)g;
  /* start[l] is now where level l ends */
  slots->used = 1; /* slot 0 holds the constant 0 */
  int64_t at = 0;
  for (int64_t i = 0; i < c->inputs; i++) {
    const int64_t net = 2 + i;
    p->place[net] = (uint32_t)at++;
    plan->input_slot[i] = -1;
    if (p->uses[net]) plan->input_slot[i] = (int32_t)(p->slot[net] = take_slot(slots));
  }
  uint32_t *code = plan->code;
  for (int64_t l = 1; l <= levels; l++)
    write_level(p, slots, p->key + p->start[l - 1], p->start[l] - p->start[l - 1], &at, &code, plan);
  plan->code_length = code - plan->code;
  plan->slots = slots->used;
  plan->gates = levels ? p->start[levels] : 0;
  for (int64_t i = 0; i < c->outputs; i++) {
    const uint32_t value = p->value[c->output[i]];
    plan->output_slot[i] = (int32_t)(p->slot[value >> 1] << 1 | (value & 1));
  }
}

int gw_plan(const struct gw_circuit *c, struct gw_program *plan) {
  if (c->inputs < 0 || c->gates < 0 || c->outputs < 0 || c->k < 1 || c->k > 3) return GW_BAD_SHAPE;
  const int64_t nets = 2 + c->inputs + c->gates;
  if (nets > INT32_MAX / 2) return GW_BAD_SHAPE;
  const size_t size = (size_t)nets, gates = (size_t)c->gates + 2;
  struct planner p = {.first = 2 + c->inputs, .nets = nets};
  struct slots slots = {0};
  p.node = malloc(gates * sizeof *p.node);
  p.value = malloc(size * sizeof *p.value);
  p.level = calloc(size, sizeof *p.level);
  p.uses = calloc(size, sizeof *p.uses);
  p.place = calloc(size, sizeof *p.place);
  p.slot = calloc(size, sizeof *p.slot);
  p.key = malloc(gates * sizeof *p.key);
  p.spare = malloc(gates * sizeof *p.spare);
  p.start = malloc(gates * sizeof *p.start);
  slots.free = malloc(size * sizeof *slots.free);
  int status = GW_NO_MEMORY;
  if (p.node && p.value && p.level && p.uses && p.place && p.slot && p.key && p.spare && p.start && slots.free) {
    plan->runs = 0;
    plan->inputs = c->inputs;
    plan->outputs = c->outputs;
    read_gates(&p, c);
    schedule(&p, c, find_needed(&p, c), &slots, plan);
    status = GW_OK;
  }
  free(p.node), free(p.value), free(p.level), free(p.uses), free(p.place), free(p.slot);
  free(p.key), free(p.spare), free(p.start), free(slots.free);
  return status;
}
