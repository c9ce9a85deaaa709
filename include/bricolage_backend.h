/* A backend of your own for bricolage, interface 1.
 *
 * A shared library that exports one symbol, `bricolage_backend`, is a backend. It brings a pattern file, which
 * says what it computes, and four functions: `plan` takes or refuses a sub-graph that a pattern matched, `compile`
 * makes a kernel of it, `run` computes, `destroy` gives the kernel back. docs/backends.md walks through one.
 *
 * What holds for every call:
 *  - All memory for inputs, outputs and workspace is the host's. A library writes into its outputs and its
 *    workspace and nowhere else.
 *  - Nothing unwinds out of a function of the library: no C++ exception, no panic, no longjmp.
 *  - `plan`, `compile` and `destroy` may be called by several threads at once, and so may `run`, for one kernel
 *    too: runs of a kernel share nothing but the kernel, which they only read, unless the library locks it.
 *  - A host table and what belongs to it hold until the call that was given them returns.
 *  - Names and version are UTF-8 and end with a zero byte.
 *  - Later versions of the interface add fields at the ends of the tables and raise BRICOLAGE_ABI where old
 *    libraries would not do; `size` is the size of a table as its maker knows it.
 */
#ifndef BRICOLAGE_BACKEND_H
#define BRICOLAGE_BACKEND_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRICOLAGE_ABI 1u

/* What functions of a library return. With all but BRICOLAGE_OK a reason is told to the host before. */
#define BRICOLAGE_OK 0        /* it was done */
#define BRICOLAGE_REFUSED 1   /* plan, compile: this sub-graph is not taken */
#define BRICOLAGE_DOMAIN 2    /* run: the inputs hold values that the op does not allow */
#define BRICOLAGE_FAILED 3    /* something else went wrong */
#define BRICOLAGE_CANCELLED 4 /* run: it stopped because the host asked for it */

/* What the host does for a library during a call. `context` is passed back to every function. */
typedef struct bricolage_host {
  uint32_t abi;
  uint32_t size;
  void *context;
  /* How many threads `parallel_for` uses, the caller included; at least 1. */
  uint32_t (*threads)(void *context);
  /* Calls `body` once for every task from 0 on, on threads of the host, and returns when all have ended.
   * `thread` is below `threads` and no two calls at a time have the same, so that each may have a part of the
   * workspace. Called from inside a body it runs on the calling thread. In `plan` and `compile` there is one thread. */
  void (*parallel_for)(void *context, uint64_t tasks,
                       void (*body)(void *argument, uint64_t task, uint32_t thread), void *argument);
  /* Not 0 once the host wants the run to end early: ask between long parts, and return BRICOLAGE_CANCELLED. */
  int32_t (*cancelled)(void *context);
  /* A line for people, kept where the user asked for it (BRICOLAGE_BACKEND_LOG) and nowhere else. */
  void (*log)(void *context, const char *line);
  /* Why the call will not return BRICOLAGE_OK, as a clause: "needs 4 dims, found 3". The last one counts; the
   * text is copied. */
  void (*reason)(void *context, const char *clause);
} bricolage_host;

#define BRICOLAGE_DETERMINISTIC 1u /* two runs on equal inputs give equal bits */

/* What a kernel will need; the host sets `size` and zeros before it calls `plan`. */
typedef struct bricolage_plan {
  uint32_t size;
  uint32_t flags;
  /* Bytes of scratch memory for one run, at most; each run gets as many at a multiple of 64, with any content. */
  uint64_t workspace;
} bricolage_plan;

/* What a library is; it holds for as long as the process lives. */
typedef struct bricolage_backend_table {
  uint32_t abi;  /* BRICOLAGE_ABI */
  uint32_t size; /* sizeof(bricolage_backend_table) */
  /* As `backend NAME` in the pattern file says; letters, digits and `_`. */
  const char *name;
  const char *version;
  /* The pattern file, docs/patterns.md. */
  const char *patterns;
  /* Names of the entries; the pattern file names each of them and no other. */
  const char *const *entries;
  uint32_t entry_count;
  /* Threads of its own that the library keeps at most, besides those that it is lent; 0 is best. */
  uint32_t own_threads;
  /* Takes or refuses a sub-graph; no constant has an address yet. Cheap, for it is asked often, and an answer
   * that takes more than 5 s is a refusal. */
  int32_t (*plan)(const bricolage_host *host, const void *subgraph, uint64_t bytes, bricolage_plan *plan);
  /* Makes a kernel of a sub-graph that was taken. Constants lie at their addresses until `destroy`; the
   * sub-graph itself holds until the call returns. */
  int32_t (*compile)(const bricolage_host *host, const void *subgraph, uint64_t bytes, void **kernel);
  /* Computes. Inputs and outputs are in the order of the sub-graph, aligned to an element at least; workspace is
   * null where none was planned. */
  int32_t (*run)(const bricolage_host *host, void *kernel, const void *const *inputs, void *const *outputs,
                 void *workspace);
  void (*destroy)(void *kernel);
} bricolage_backend_table;

/* The one symbol. Returns null if the library does not know the interface `abi`. */
const bricolage_backend_table *bricolage_backend(uint32_t abi);

/* ------------------------------------------------------------------------------------------------------------
 * The sub-graph: one block of bytes, all numbers little-endian. It starts with a header:
 *
 *   at  0  u32  BRICOLAGE_MAGIC, the letters BCSG
 *   at  4  u32  version of this description, 1
 *   at  8  u64  bytes of the whole block
 *   at 16  u32  text: the entry of the pattern
 *   at 20  u32  threads that runs will have at most; 0 where that is not known yet
 *   at 24  u32  what kernels may do to numbers: 0 other orders of summation, 1 Winograd too, 2 fewer bits too
 *   at 28  u32  0
 *   at 32  tensors     records of 64 bytes
 *   at 40  nodes       records of 32 bytes, each after those that it reads
 *   at 48  inputs      u32 each: a tensor
 *   at 56  outputs     u32 each: a tensor
 *   at 64  constants   u32 each: a tensor
 *   at 72  bindings    records of 16 bytes: what the names of the pattern stand for
 *   at 80  values      records of 32 bytes: attributes
 *   at 88  operands    u32 each: a tensor or BRICOLAGE_NONE, for one that is missing
 *   at 96  sizes       i64 each
 *
 * A table in the header is a u32, where it starts in the block, and a u32, how many records it has. A text is a
 * u32, where it lies in the block: u32 length, the bytes, a zero byte. Other u32 that name a record count from 0.
 *
 *   tensor   at  0 text name | 4 u32 role | 8 u32 place among inputs, outputs or constants, or NONE
 *            at 12 u32 element type | 16 u32 layout | 20 u32 channels of a block | 24 u32 halo | 28 u32 rank
 *            at 32 u32 first of its dims among the sizes | 36 u32 first of its strides among the sizes
 *            at 40 u64 bytes | 48 u64 address of a constant, else 0 | 56 u64 0
 *   node     at  0 text op | 4 u32 first operand | 8 u32 operands | 12 u32 first result | 16 u32 results, both
 *            among the operands | 20 u32 first attribute among the values | 24 u32 attributes | 28 u32 0
 *   binding  at  0 text name | 4 u32 tensor or NONE | 8 u32 node or NONE | 12 u32 1 if it stands for something: not
 *            for an operand that is missing or a node that was passed by
 *   value    at  0 text name, or 0 | 4 u32 kind | 8 u32 first item among the values | 12 u32 items | 16 i64, f64 or
 *            0 or 1, by its kind; of a text its u32 | 24 u64 0
 *
 * Ops and attributes have the names that they have in pattern files. Strides are in elements and those of the
 * formats: of a blocked layout that of channels is between two blocks. Element 0 lies behind the halo. A sub-graph
 * without nodes copies its input to its output, which have two formats: a `convert` of the pattern file.
 * ---------------------------------------------------------------------------------------------------------- */

#define BRICOLAGE_MAGIC 0x47534342u
#define BRICOLAGE_SUBGRAPH 1u
#define BRICOLAGE_NONE 0xFFFFFFFFu

enum { BRICOLAGE_INNER, BRICOLAGE_INPUT, BRICOLAGE_OUTPUT, BRICOLAGE_CONSTANT };
enum { BRICOLAGE_PLAIN, BRICOLAGE_CHANNELS_LAST, BRICOLAGE_BLOCKED };
enum {
  BRICOLAGE_NULL, /* nothing, or a number that is not finite */
  BRICOLAGE_BOOL,
  BRICOLAGE_INT,
  BRICOLAGE_REAL,
  BRICOLAGE_TEXT,
  BRICOLAGE_LIST,  /* items without names */
  BRICOLAGE_FIELDS /* items with names */
};
/* Elements of less than a byte are packed, the first in the lowest bits. */
enum {
  BRICOLAGE_F32,
  BRICOLAGE_F64,
  BRICOLAGE_F16,
  BRICOLAGE_BF16,
  BRICOLAGE_I8,
  BRICOLAGE_I16,
  BRICOLAGE_I32,
  BRICOLAGE_I64,
  BRICOLAGE_U8,
  BRICOLAGE_U16,
  BRICOLAGE_U32,
  BRICOLAGE_U64,
  BRICOLAGE_BOOLEAN,
  BRICOLAGE_F8E4M3FN,
  BRICOLAGE_F8E4M3FNUZ,
  BRICOLAGE_F8E5M2,
  BRICOLAGE_F8E5M2FNUZ,
  BRICOLAGE_F8E8M0,
  BRICOLAGE_F4E2M1,
  BRICOLAGE_I4,
  BRICOLAGE_U4,
  BRICOLAGE_I2,
  BRICOLAGE_U2
};

/* Readers. The host makes sub-graphs and checks those of files, so only the version is checked here. */
typedef const uint8_t *bricolage_graph;

static inline uint32_t bricolage_u32(bricolage_graph at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static inline uint64_t bricolage_u64(bricolage_graph at) {
  return (uint64_t)bricolage_u32(at) | (uint64_t)bricolage_u32(at + 4) << 32;
}
/* The sub-graph, or null if it is described in another version. */
static inline bricolage_graph bricolage_read(const void *subgraph, uint64_t bytes) {
  bricolage_graph g = (bricolage_graph)subgraph;
  int known = bytes >= 104 && bricolage_u32(g) == BRICOLAGE_MAGIC && bricolage_u32(g + 4) == BRICOLAGE_SUBGRAPH;
  return known ? g : (bricolage_graph)0;
}
static inline const char *bricolage_text(bricolage_graph g, uint32_t text) {
  return text ? (const char *)(g + text + 4) : "";
}
static inline bricolage_graph bricolage_record(bricolage_graph g, uint32_t table, uint32_t i, uint32_t bytes) {
  return g + bricolage_u32(g + table) + (uint64_t)i * bytes;
}
static inline const char *bricolage_entry(bricolage_graph g) { return bricolage_text(g, bricolage_u32(g + 16)); }
static inline uint32_t bricolage_threads(bricolage_graph g) { return bricolage_u32(g + 20); }
static inline uint32_t bricolage_numerics(bricolage_graph g) { return bricolage_u32(g + 24); }

static inline uint32_t bricolage_tensors(bricolage_graph g) { return bricolage_u32(g + 36); }
static inline uint32_t bricolage_nodes(bricolage_graph g) { return bricolage_u32(g + 44); }
static inline uint32_t bricolage_inputs(bricolage_graph g) { return bricolage_u32(g + 52); }
static inline uint32_t bricolage_outputs(bricolage_graph g) { return bricolage_u32(g + 60); }
static inline uint32_t bricolage_constants(bricolage_graph g) { return bricolage_u32(g + 68); }
/* The tensor that is input, output or constant number `i`. */
static inline uint32_t bricolage_input(bricolage_graph g, uint32_t i) {
  return bricolage_u32(bricolage_record(g, 48, i, 4));
}
static inline uint32_t bricolage_output(bricolage_graph g, uint32_t i) {
  return bricolage_u32(bricolage_record(g, 56, i, 4));
}
static inline uint32_t bricolage_constant(bricolage_graph g, uint32_t i) {
  return bricolage_u32(bricolage_record(g, 64, i, 4));
}

/* What a tensor is. */
static inline uint32_t bricolage_tensor_field(bricolage_graph g, uint32_t tensor, uint32_t at) {
  return bricolage_u32(bricolage_record(g, 32, tensor, 64) + at);
}
static inline const char *bricolage_name(bricolage_graph g, uint32_t tensor) {
  return bricolage_text(g, bricolage_tensor_field(g, tensor, 0));
}
static inline uint32_t bricolage_role(bricolage_graph g, uint32_t tensor) {
  return bricolage_tensor_field(g, tensor, 4);
}
/* Its number among inputs, outputs or constants, by its role. */
static inline uint32_t bricolage_place(bricolage_graph g, uint32_t tensor) {
  return bricolage_tensor_field(g, tensor, 8);
}
static inline uint32_t bricolage_dtype(bricolage_graph g, uint32_t tensor) {
  return bricolage_tensor_field(g, tensor, 12);
}
static inline uint32_t bricolage_layout(bricolage_graph g, uint32_t tensor) {
  return bricolage_tensor_field(g, tensor, 16);
}
static inline uint32_t bricolage_block(bricolage_graph g, uint32_t tensor) {
  return bricolage_tensor_field(g, tensor, 20);
}
static inline uint32_t bricolage_halo(bricolage_graph g, uint32_t tensor) {
  return bricolage_tensor_field(g, tensor, 24);
}
static inline uint32_t bricolage_rank(bricolage_graph g, uint32_t tensor) {
  return bricolage_tensor_field(g, tensor, 28);
}
static inline int64_t bricolage_dim(bricolage_graph g, uint32_t tensor, uint32_t d) {
  return (int64_t)bricolage_u64(bricolage_record(g, 96, bricolage_tensor_field(g, tensor, 32) + d, 8));
}
static inline int64_t bricolage_stride(bricolage_graph g, uint32_t tensor, uint32_t d) {
  return (int64_t)bricolage_u64(bricolage_record(g, 96, bricolage_tensor_field(g, tensor, 36) + d, 8));
}
static inline uint64_t bricolage_bytes(bricolage_graph g, uint32_t tensor) {
  return bricolage_u64(bricolage_record(g, 32, tensor, 64) + 40);
}
static inline int64_t bricolage_elements(bricolage_graph g, uint32_t tensor) {
  int64_t all = 1;
  for (uint32_t d = 0; d < bricolage_rank(g, tensor); d++) all *= bricolage_dim(g, tensor, d);
  return all;
}
/* The elements of a constant, row-major; null in `plan`, and for a tensor that is none. */
static inline const void *bricolage_data(bricolage_graph g, uint32_t tensor) {
  return (const void *)(uintptr_t)bricolage_u64(bricolage_record(g, 32, tensor, 64) + 48);
}

/* What a node is. */
static inline uint32_t bricolage_node_field(bricolage_graph g, uint32_t node, uint32_t at) {
  return bricolage_u32(bricolage_record(g, 40, node, 32) + at);
}
static inline const char *bricolage_op(bricolage_graph g, uint32_t node) {
  return bricolage_text(g, bricolage_node_field(g, node, 0));
}
static inline uint32_t bricolage_operands(bricolage_graph g, uint32_t node) {
  return bricolage_node_field(g, node, 8);
}
static inline uint32_t bricolage_results(bricolage_graph g, uint32_t node) {
  return bricolage_node_field(g, node, 16);
}
/* A tensor, or BRICOLAGE_NONE for one that is missing. */
static inline uint32_t bricolage_operand(bricolage_graph g, uint32_t node, uint32_t i) {
  if (i >= bricolage_operands(g, node)) return BRICOLAGE_NONE;
  return bricolage_u32(bricolage_record(g, 88, bricolage_node_field(g, node, 4) + i, 4));
}
static inline uint32_t bricolage_result(bricolage_graph g, uint32_t node, uint32_t i) {
  if (i >= bricolage_results(g, node)) return BRICOLAGE_NONE;
  return bricolage_u32(bricolage_record(g, 88, bricolage_node_field(g, node, 12) + i, 4));
}

/* What a value is. */
static inline uint32_t bricolage_value_field(bricolage_graph g, uint32_t value, uint32_t at) {
  return bricolage_u32(bricolage_record(g, 80, value, 32) + at);
}
static inline uint32_t bricolage_find(bricolage_graph g, uint32_t first, uint32_t count, const char *name) {
  for (uint32_t v = first; v < first + count; v++)
    if (!strcmp(bricolage_text(g, bricolage_value_field(g, v, 0)), name)) return v;
  return BRICOLAGE_NONE;
}
/* The attribute of a node, or BRICOLAGE_NONE. */
static inline uint32_t bricolage_attribute(bricolage_graph g, uint32_t node, const char *name) {
  return bricolage_find(g, bricolage_node_field(g, node, 20), bricolage_node_field(g, node, 24), name);
}
/* The kind of a value; that of BRICOLAGE_NONE is BRICOLAGE_NULL. */
static inline uint32_t bricolage_kind(bricolage_graph g, uint32_t value) {
  return value == BRICOLAGE_NONE ? (uint32_t)BRICOLAGE_NULL : bricolage_value_field(g, value, 4);
}
static inline uint32_t bricolage_items(bricolage_graph g, uint32_t value) {
  return value == BRICOLAGE_NONE ? 0 : bricolage_value_field(g, value, 12);
}
static inline uint32_t bricolage_item(bricolage_graph g, uint32_t value, uint32_t i) {
  return i < bricolage_items(g, value) ? bricolage_value_field(g, value, 8) + i : BRICOLAGE_NONE;
}
static inline uint32_t bricolage_field(bricolage_graph g, uint32_t value, const char *name) {
  if (bricolage_kind(g, value) != BRICOLAGE_FIELDS) return BRICOLAGE_NONE;
  return bricolage_find(g, bricolage_value_field(g, value, 8), bricolage_items(g, value), name);
}
/* A truth value or an integer; 0 for anything else. */
static inline int64_t bricolage_int(bricolage_graph g, uint32_t value) {
  uint32_t kind = bricolage_kind(g, value);
  if (kind != BRICOLAGE_BOOL && kind != BRICOLAGE_INT) return 0;
  return (int64_t)bricolage_u64(bricolage_record(g, 80, value, 32) + 16);
}
/* A number; 0 for anything else. */
static inline double bricolage_real(bricolage_graph g, uint32_t value) {
  if (bricolage_kind(g, value) != BRICOLAGE_REAL) return (double)bricolage_int(g, value);
  uint64_t bits = bricolage_u64(bricolage_record(g, 80, value, 32) + 16);
  double real;
  memcpy(&real, &bits, sizeof real);
  return real;
}
/* A text; "" for anything else. */
static inline const char *bricolage_words(bricolage_graph g, uint32_t value) {
  return bricolage_kind(g, value) == BRICOLAGE_TEXT ? bricolage_text(g, bricolage_value_field(g, value, 16)) : "";
}

/* What a name of the pattern stands for: a tensor, a node, or BRICOLAGE_NONE. */
static inline uint32_t bricolage_binding(bricolage_graph g, const char *name, uint32_t at) {
  for (uint32_t i = 0; i < bricolage_u32(g + 76); i++) {
    bricolage_graph record = bricolage_record(g, 72, i, 16);
    if (!strcmp(bricolage_text(g, bricolage_u32(record)), name)) return bricolage_u32(record + at);
  }
  return BRICOLAGE_NONE;
}
static inline uint32_t bricolage_bound_tensor(bricolage_graph g, const char *name) {
  return bricolage_binding(g, name, 4);
}
static inline uint32_t bricolage_bound_node(bricolage_graph g, const char *name) {
  return bricolage_binding(g, name, 8);
}
/* Whether the name stands for something: not for an operand that is missing or a node that was passed by. */
static inline int bricolage_has(bricolage_graph g, const char *name) { return bricolage_binding(g, name, 12) == 1; }

#ifdef __cplusplus
}
#endif
#endif
