/* `surface`: calls every function of the interface and emits the results. It exists in each
 * language, and one script tests them all. */
#include "weir_guest.h"

enum { BYTES = 64, HEADER = 88 };

WEIR_PROGRAM

#define EMIT(name, bytes, len) weir_emit_put(name, sizeof(name) - 1, bytes, len)

WEIR_INIT {
  uint8_t args[BYTES];
  EMIT("args", args, weir_input_read(WEIR_ARGS, 0, args, sizeof args));
  return 0;
}

WEIR_UPGRADE {
  uint8_t hash[32];
  uint8_t len = (uint8_t)weir_input_read(WEIR_REPLACED_CODE, 0, hash, sizeof hash);
  EMIT("replaced", &len, 1);
  return 0;
}

/* The header in big-endian order. */
static void header(const weir_input *input, uint8_t bytes[HEADER]) {
  weir_put_u32(bytes, input->op);
  weir_put_u32(bytes + 4, input->flags);
  weir_put_u64(bytes + 8, input->intention_offset);
  weir_put_u64(bytes + 16, input->next_offset);
  weir_put_u64(bytes + 24, input->term);
  weir_put_u64(bytes + 32, input->time_ms);
  weir_put_u64(bytes + 40, input->nonce);
  for (size_t i = 0; i < 16; i++) bytes[48 + i] = input->client_id[i];
  weir_put_u32(bytes + 64, input->key_len);
  weir_put_u32(bytes + 68, input->value_len);
  weir_put_u32(bytes + 72, input->args_len);
  weir_put_u32(bytes + 76, input->principal_len);
  weir_put_u32(bytes + 80, input->step);
  weir_put_u32(bytes + 84, input->steps);
}

/* Emits a result from byte `from` on, or a dash if there is none. */
static void emit_found(const char *name, size_t name_len, const uint8_t *bytes, int32_t len,
                       int32_t from) {
  if (len < 0) {
    weir_emit_put(name, name_len, "-", 1);
  } else {
    weir_emit_put(name, name_len, bytes, len > from ? (size_t)(len - from) : 0);
  }
}
#define FOUND(name, bytes, len, from) emit_found(name, sizeof(name) - 1, bytes, len, from)

/* Kind, position and length of the value and of its `a`, one byte each; one byte if it is not JSON.
 * Returns the number of bytes. */
static size_t shape(uint8_t *bytes) {
  uint32_t found[6];
  int32_t answer = weir_json_find(WEIR_VALUE, 1, "$\n$.a", 5, found);
  if (answer == -1) {
    bytes[0] = (uint8_t)found[0];
    return 1;
  }
  if (answer < 0) return 0;
  for (size_t i = 0; i < 6; i++) bytes[i] = (uint8_t)(found[i] - (i % 3 == 0 && found[i] > 2));
  return 6;
}

WEIR_APPLY {
  weir_input input;
  uint8_t key[BYTES], value[BYTES], bytes[HEADER];
  weir_input_info(&input);
  size_t key_len = weir_input_read(WEIR_KEY, 0, key, sizeof key);
  if (input.op == WEIR_OP_DELETE) {
    weir_state_delete(key, key_len);
    weir_emit_delete(key, key_len);
    return 0;
  }
  size_t value_len = weir_input_read(WEIR_VALUE, 0, value, sizeof value);
  if (value_len == 0) return WEIR_REJECT(9, "nothing to look at");
  weir_log(WEIR_INFO, "looking", 7);
  header(&input, bytes);
  EMIT("header", bytes, HEADER);
  EMIT("who", bytes, weir_input_read(WEIR_PRINCIPAL, 0, bytes, BYTES));
  FOUND("before", bytes, weir_state_get(key, key_len, 0, bytes, BYTES), 0);
  weir_state_put(key, key_len, value, value_len);
  FOUND("first", bytes, weir_state_next("", 0, bytes, BYTES), 0);
  FOUND("seen", bytes, weir_key_get(key, key_len, 1, bytes, BYTES), 1);
  weir_put_i64(bytes, weir_key_offset(key, key_len));
  EMIT("at", bytes, 8);
  weir_hash(WEIR_SHA256, value, value_len, bytes);
  EMIT("sha", bytes, 32);
  weir_hash(WEIR_BLAKE3, value, value_len, bytes);
  EMIT("blake", bytes, 32);
  EMIT("json", bytes, shape(bytes));
  weir_emit_value("tail", 4, 1, value_len - 1);
  weir_emit_input();
  return 0;
}
