/* A backend in C: relu, and products by a constant matrix with a bias and relu after them.
 *
 *   cc -O3 -std=c11 -shared -fPIC -I include examples/plugins/c/tinymath.c -o libtinymath.so
 */
#include "bricolage_backend.h"
#include <stdlib.h>

static const char patterns[] =
    "backend tinymath {\n"
    "  kind: supplement;\n"
    "  version: \"1.0\" .. \"2.0\";\n"
    "  covers: \"relu, and products by a constant matrix with a bias and relu\";\n"
    "}\n"
    "pattern relu { match: relu(x@_); formats: { _: f32:plain; } numerics: exact; }\n"
    "let product(x, w) = mat_mul[transpose_lhs = false, transpose_rhs = false](x, w);\n"
    "pattern dense {\n"
    "  match: y@relu(s@add{product(x@_, w@const), b@const}?)?;\n"
    "  where: x.rank >= 2 && w.rank == 2 && (!has(s) || b.rank == 1 && b.elements == w.dim[1]);\n"
    "  formats: { _: f32:plain; }\n"
    "}\n";
static const char *const entries[] = {"relu", "dense"};

/* A kernel: sizes, and the constants, which lie where they are until it is destroyed. */
typedef struct {
  int64_t rows, inner, columns; /* of a relu, `columns` elements in one row */
  const float *weights, *bias;
  int dense, relu;
} kernel_t;

static int read_kernel(const bricolage_host *host, const void *subgraph, uint64_t bytes, kernel_t *k) {
  bricolage_graph g = bricolage_read(subgraph, bytes);
  if (!g) {
    host->reason(host->context, "needs a sub-graph of version 1");
    return BRICOLAGE_REFUSED;
  }
  uint32_t x = bricolage_input(g, 0);
  *k = (kernel_t){.rows = 1, .columns = bricolage_elements(g, x), .relu = 1};
  k->dense = !strcmp(bricolage_entry(g), "dense");
  if (!k->dense) return BRICOLAGE_OK;
  uint32_t w = bricolage_bound_tensor(g, "w");
  k->inner = bricolage_dim(g, w, 0);
  k->columns = bricolage_dim(g, w, 1);
  for (uint32_t d = 0; d + 1 < bricolage_rank(g, x); d++) k->rows *= bricolage_dim(g, x, d);
  if (k->columns > 1 << 20) {
    host->reason(host->context, "needs at most 2^20 columns, found more");
    return BRICOLAGE_REFUSED;
  }
  k->weights = bricolage_data(g, w);
  if (bricolage_has(g, "s")) k->bias = bricolage_data(g, bricolage_bound_tensor(g, "b"));
  k->relu = bricolage_has(g, "y");
  return BRICOLAGE_OK;
}

static int32_t plan(const bricolage_host *host, const void *subgraph, uint64_t bytes, bricolage_plan *plan) {
  kernel_t k;
  int32_t status = read_kernel(host, subgraph, bytes, &k);
  if (status != BRICOLAGE_OK) return status;
  /* Each thread sums a row in doubles. */
  if (k.dense) plan->workspace = (uint64_t)k.columns * sizeof(double) * bricolage_threads(subgraph);
  plan->flags = BRICOLAGE_DETERMINISTIC;
  return BRICOLAGE_OK;
}

static int32_t compile(const bricolage_host *host, const void *subgraph, uint64_t bytes, void **kernel) {
  kernel_t k, *made = malloc(sizeof k);
  int32_t status = read_kernel(host, subgraph, bytes, &k);
  if (status != BRICOLAGE_OK || !made) {
    free(made);
    return status != BRICOLAGE_OK ? status : BRICOLAGE_FAILED;
  }
  *made = k;
  *kernel = made;
  return BRICOLAGE_OK;
}

/* What tasks of one run share. */
typedef struct {
  const bricolage_host *host;
  const kernel_t *k;
  const float *x;
  float *y;
  double *sums;
} run_t;

static float relu(float v) { return v < 0 ? 0 : v; } /* keeps what is no number */

static void relu_part(void *argument, uint64_t task, uint32_t thread) {
  const run_t *r = argument;
  int64_t first = (int64_t)task << 12, end = first + (1 << 12);
  (void)thread;
  if (end > r->k->columns) end = r->k->columns;
  for (int64_t i = first; i < end; i++) r->y[i] = relu(r->x[i]);
}

static void dense_row(void *argument, uint64_t row, uint32_t thread) {
  const run_t *r = argument;
  const kernel_t *k = r->k;
  double *sums = r->sums + (int64_t)thread * k->columns;
  if (r->host->cancelled(r->host->context)) return;
  for (int64_t j = 0; j < k->columns; j++) sums[j] = k->bias ? k->bias[j] : 0;
  for (int64_t i = 0; i < k->inner; i++)
    for (int64_t j = 0; j < k->columns; j++)
      sums[j] += (double)r->x[(int64_t)row * k->inner + i] * k->weights[i * k->columns + j];
  for (int64_t j = 0; j < k->columns; j++)
    r->y[(int64_t)row * k->columns + j] = k->relu ? relu((float)sums[j]) : (float)sums[j];
}

static int32_t run(const bricolage_host *host, void *kernel, const void *const *inputs, void *const *outputs,
                   void *workspace) {
  run_t r = {host, kernel, inputs[0], outputs[0], workspace};
  if (r.k->dense)
    host->parallel_for(host->context, (uint64_t)r.k->rows, dense_row, &r);
  else
    host->parallel_for(host->context, (uint64_t)(r.k->columns + 4095) >> 12, relu_part, &r);
  return host->cancelled(host->context) ? BRICOLAGE_CANCELLED : BRICOLAGE_OK;
}

static const bricolage_backend_table table = {
    BRICOLAGE_ABI, sizeof(bricolage_backend_table), "tinymath", "1.0.0", patterns, entries, 2, 0, plan, compile,
    run, free};

const bricolage_backend_table *bricolage_backend(uint32_t abi) { return abi == BRICOLAGE_ABI ? &table : 0; }
