/* A backend that does one thing wrong, which FAULT names, and writes a letter for every call to a file. */
#include "bricolage_backend.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
  NONE,
  CRASH_AT_LOAD,
  CRASH_IN_PLAN,
  CRASH_IN_COMPILE,
  CRASH_IN_RUN,
  CRASH_LATER,
  HANG_IN_PLAN,
  HANG_IN_COMPILE,
  HANG_IN_RUN,
  LIE,
  WRITE_PAST_OUTPUT,
  WRITE_PAST_WORKSPACE,
  WRITE_INPUT,
  READ_NO_WORKSPACE,
  READ_FRESH_WORKSPACE,
  CHANGE_BETWEEN_RUNS,
  EXIT_IN_RUN,
  START_THREADS,
  LEAK
};

static const char patterns[] =
    "backend hostile { kind: supplement; }\n"
    "pattern product { match: mat_mul[transpose_lhs = false, transpose_rhs = false](x@_, w@const);\n"
    "  where: x.rank == 2 && w.rank == 2; formats: { _: f32:plain; } }\n";
static const char *const entries[] = {"product"};

static void mark(const char *letter) {
  const char *path = getenv("BRICOLAGE_TEST_MARKS");
  FILE *file = path ? fopen(path, "a") : 0;
  if (!file) return;
  fputs(letter, file);
  fclose(file);
}

static void hang(void) {
  for (;;) sleep(1);
}

static void *idle(void *none) {
  hang();
  return none;
}

__attribute__((constructor)) static void load(void) {
  if (FAULT == CRASH_AT_LOAD) abort();
}

typedef struct {
  int64_t rows, inner, columns;
  const float *weights;
} kernel_t;

static int32_t plan(const bricolage_host *host, const void *subgraph, uint64_t bytes, bricolage_plan *plan) {
  (void)host, (void)subgraph, (void)bytes;
  mark("p");
  if (FAULT == CRASH_IN_PLAN) abort();
  if (FAULT == HANG_IN_PLAN) hang();
  if (FAULT == WRITE_PAST_WORKSPACE || FAULT == READ_FRESH_WORKSPACE) plan->workspace = 128;
  plan->flags = BRICOLAGE_DETERMINISTIC;
  return BRICOLAGE_OK;
}

static int32_t compile(const bricolage_host *host, const void *subgraph, uint64_t bytes, void **kernel) {
  bricolage_graph g = bricolage_read(subgraph, bytes);
  uint32_t x = bricolage_bound_tensor(g, "x"), w = bricolage_bound_tensor(g, "w");
  kernel_t *k = malloc(sizeof *k);
  (void)host;
  mark("c");
  if (FAULT == CRASH_IN_COMPILE) abort();
  if (FAULT == HANG_IN_COMPILE) hang();
  if (FAULT == LEAK) {
    volatile char *lost = malloc(8192);
    for (int i = 0; lost && i < 8192; i++) lost[i] = 1;
  }
  if (FAULT == START_THREADS) {
    static pthread_t thread;
    if (!thread) pthread_create(&thread, 0, idle, 0);
  }
  *k = (kernel_t){bricolage_dim(g, x, 0), bricolage_dim(g, w, 0), bricolage_dim(g, w, 1), bricolage_data(g, w)};
  *kernel = k;
  return BRICOLAGE_OK;
}

static int32_t run(const bricolage_host *host, void *kernel, const void *const *inputs, void *const *outputs,
                   void *workspace) {
  static int runs;
  const kernel_t *k = kernel;
  const float *x = inputs[0];
  float *y = outputs[0], *scratch = workspace;
  (void)host;
  mark("r");
  runs++;
  if (FAULT == CRASH_IN_RUN) abort();
  if (FAULT == CRASH_LATER && runs > 3) abort();
  if (FAULT == EXIT_IN_RUN) _exit(0);
  if (FAULT == HANG_IN_RUN) hang();
  for (int64_t i = 0; i < k->rows; i++)
    for (int64_t j = 0; j < k->columns; j++) {
      float sum = 0;
      for (int64_t l = 0; l < k->inner; l++) sum += x[i * k->inner + l] * k->weights[l * k->columns + j];
      if (FAULT == LIE) sum += 1;
      if (FAULT == READ_NO_WORKSPACE || FAULT == READ_FRESH_WORKSPACE) sum += scratch[j];
      if (FAULT == CHANGE_BETWEEN_RUNS && runs > 1) sum *= 1.0000002f;
      y[i * k->columns + j] = sum;
    }
  if (FAULT == WRITE_PAST_OUTPUT) y[k->rows * k->columns] = 0;
  if (FAULT == WRITE_PAST_WORKSPACE) scratch[32] = 0;
  if (FAULT == WRITE_INPUT) ((float *)(uintptr_t)x)[1] = 0;
  return BRICOLAGE_OK;
}

static const bricolage_backend_table table = {
    BRICOLAGE_ABI, sizeof(bricolage_backend_table), "hostile", "1.0", patterns, entries, 1, 0, plan, compile, run,
    free};

const bricolage_backend_table *bricolage_backend(uint32_t abi) { return abi == BRICOLAGE_ABI ? &table : 0; }
