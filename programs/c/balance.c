/* `balance`: accounts that cannot be overdrawn. The balances are the values of the topic's own
 * keys, so all readers of the topic see them.
 *
 * Key: source, 32 bytes; 32 zero bytes are the bank. Value, big-endian: destination (32), amount
 * (i64), and the offsets at which the client saw both balances (u64 each, 0: any). Optional
 * arguments: byte 1 and the name of the only principal who may transfer money from the bank. An
 * empty name means clients without a principal. Without arguments, everyone may. */
#include "weir_guest.h"

enum { ACCOUNT = 32, VALUE = 56, NAME_MAX = 256 };

static const uint8_t BANK[ACCOUNT];

WEIR_PROGRAM

static int64_t balance(const uint8_t *account) {
  uint8_t bytes[8];
  int32_t len = weir_key_get(account, ACCOUNT, 0, bytes, sizeof bytes);
  return len < 8 ? 0 : weir_get_i64(bytes);
}

static void set_balance(const uint8_t *account, int64_t amount) {
  uint8_t bytes[8];
  weir_put_i64(bytes, amount);
  weir_emit_put(account, ACCOUNT, bytes, sizeof bytes);
}

static int may_mint(void) {
  uint8_t args[NAME_MAX], name[NAME_MAX];
  uint32_t args_len = weir_input_read(WEIR_ARGS, 0, args, sizeof args);
  uint32_t name_len = weir_input_read(WEIR_PRINCIPAL, 0, name, sizeof name);
  if (args_len == 0 || args[0] != 1) return 1;
  return args_len - 1 == name_len && weir_equal(args + 1, name, name_len);
}

static int has_changed(const uint8_t *account, uint64_t seen) {
  return seen != 0 && (uint64_t)weir_key_offset(account, ACCOUNT) != seen;
}

WEIR_APPLY {
  weir_input input;
  weir_input_info(&input);
  if (input.op != WEIR_OP_PUT || input.key_len != ACCOUNT || input.value_len != VALUE) {
    return WEIR_REJECT(1, "key of 32 bytes, value of 56");
  }
  uint8_t source[ACCOUNT], value[VALUE];
  weir_input_read(WEIR_KEY, 0, source, sizeof source);
  weir_input_read(WEIR_VALUE, 0, value, sizeof value);
  const uint8_t *destination = value;
  int64_t amount = weir_get_i64(value + 32);
  if (amount <= 0) return WEIR_REJECT(2, "the amount must be positive");
  if (weir_equal(source, destination, ACCOUNT)) {
    return WEIR_REJECT(3, "source and destination are the same");
  }
  if (has_changed(source, weir_get_u64(value + 40)) ||
      has_changed(destination, weir_get_u64(value + 48))) {
    return WEIR_REJECT(4, "an account has changed since");
  }
  if (weir_equal(source, BANK, ACCOUNT)) {
    if (!may_mint()) return WEIR_REJECT(8, "only one principal may use the bank");
  } else {
    int64_t has = balance(source);
    if (has < amount) return WEIR_REJECT(6, "not enough");
    set_balance(source, has - amount);
  }
  if (!weir_equal(destination, BANK, ACCOUNT)) {
    int64_t gets;
    if (__builtin_add_overflow(balance(destination), amount, &gets)) {
      return WEIR_REJECT(7, "the destination overflows");
    }
    set_balance(destination, gets);
  }
  set_balance(BANK, amount);
  return 0;
}
