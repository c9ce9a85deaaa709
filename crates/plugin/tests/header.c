/* Prints what C sees: sizes and offsets of the tables, then a sub-graph read from a file. */
#include "bricolage_backend.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define AT(type, field) printf(#type " " #field " %zu\n", offsetof(type, field))

static void value(bricolage_graph g, uint32_t v) {
  switch (bricolage_kind(g, v)) {
    case BRICOLAGE_NULL: printf("null"); break;
    case BRICOLAGE_BOOL: printf(bricolage_int(g, v) ? "true" : "false"); break;
    case BRICOLAGE_INT: printf("%lld", (long long)bricolage_int(g, v)); break;
    case BRICOLAGE_REAL: printf("%a", bricolage_real(g, v)); break;
    case BRICOLAGE_TEXT: printf("'%s'", bricolage_words(g, v)); break;
    default:
      printf("(");
      for (uint32_t i = 0; i < bricolage_items(g, v); i++) {
        uint32_t item = bricolage_item(g, v, i);
        const char *name = bricolage_text(g, bricolage_value_field(g, item, 0));
        printf(" %s%s", name, *name ? ":" : "");
        value(g, item);
      }
      printf(" )");
  }
}

int main(int count, char **arguments) {
  printf("abi %u magic %u version %u\n", BRICOLAGE_ABI, BRICOLAGE_MAGIC, BRICOLAGE_SUBGRAPH);
  printf("status %d %d %d %d %d flag %u\n", BRICOLAGE_OK, BRICOLAGE_REFUSED, BRICOLAGE_DOMAIN, BRICOLAGE_FAILED,
         BRICOLAGE_CANCELLED, BRICOLAGE_DETERMINISTIC);
  printf("sizes %zu %zu %zu\n", sizeof(bricolage_host), sizeof(bricolage_plan), sizeof(bricolage_backend_table));
  AT(bricolage_host, abi); AT(bricolage_host, size); AT(bricolage_host, context); AT(bricolage_host, threads);
  AT(bricolage_host, parallel_for); AT(bricolage_host, cancelled); AT(bricolage_host, log);
  AT(bricolage_host, reason);
  AT(bricolage_plan, size); AT(bricolage_plan, flags); AT(bricolage_plan, workspace);
  AT(bricolage_backend_table, abi); AT(bricolage_backend_table, size); AT(bricolage_backend_table, name);
  AT(bricolage_backend_table, version); AT(bricolage_backend_table, patterns);
  AT(bricolage_backend_table, entries); AT(bricolage_backend_table, entry_count);
  AT(bricolage_backend_table, own_threads); AT(bricolage_backend_table, plan);
  AT(bricolage_backend_table, compile); AT(bricolage_backend_table, run); AT(bricolage_backend_table, destroy);
  printf("dtypes %d %d %d\n", BRICOLAGE_F32, BRICOLAGE_BOOLEAN, BRICOLAGE_U2);

  if (count != 2) return 2;
  FILE *file = fopen(arguments[1], "rb");
  if (!file) return 2;
  static uint8_t bytes[1 << 16];
  size_t length = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  bricolage_graph g = bricolage_read(bytes, length);
  if (!g) return 3;
  printf("entry %s threads %u numerics %u\n", bricolage_entry(g), bricolage_threads(g), bricolage_numerics(g));
  for (uint32_t t = 0; t < bricolage_tensors(g); t++) {
    printf("tensor %s role %u place %u dtype %u layout %u %u %u bytes %llu data %llu", bricolage_name(g, t),
           bricolage_role(g, t), bricolage_place(g, t), bricolage_dtype(g, t), bricolage_layout(g, t),
           bricolage_block(g, t), bricolage_halo(g, t), (unsigned long long)bricolage_bytes(g, t),
           (unsigned long long)(uintptr_t)bricolage_data(g, t));
    for (uint32_t d = 0; d < bricolage_rank(g, t); d++)
      printf(" %lld/%lld", (long long)bricolage_dim(g, t, d), (long long)bricolage_stride(g, t, d));
    printf("\n");
  }
  for (uint32_t n = 0; n < bricolage_nodes(g); n++) {
    printf("node %s", bricolage_op(g, n));
    for (uint32_t i = 0; i < bricolage_operands(g, n); i++) printf(" %d", (int)bricolage_operand(g, n, i));
    printf(" ->");
    for (uint32_t i = 0; i < bricolage_results(g, n); i++) printf(" %d", (int)bricolage_result(g, n, i));
    printf(" pads ");
    value(g, bricolage_attribute(g, n, "pads"));
    printf(" kind ");
    value(g, bricolage_field(g, bricolage_attribute(g, n, "kind"), "Mean"));
    printf(" none ");
    value(g, bricolage_attribute(g, n, "none"));
    printf("\n");
  }
  for (uint32_t i = 0; i < bricolage_inputs(g); i++) printf("input %u\n", bricolage_input(g, i));
  for (uint32_t i = 0; i < bricolage_outputs(g); i++) printf("output %u\n", bricolage_output(g, i));
  for (uint32_t i = 0; i < bricolage_constants(g); i++) printf("constant %u\n", bricolage_constant(g, i));
  printf("bound %d %d %d %d %d\n", (int)bricolage_bound_tensor(g, "x"), (int)bricolage_bound_node(g, "y"),
         bricolage_has(g, "y"), bricolage_has(g, "b"), bricolage_has(g, "nothing"));
  return 0;
}
