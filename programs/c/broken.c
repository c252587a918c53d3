/* `broken`: accepts each write, except for values that trigger a fault in it. It exists in each
 * language, and shows the trace of a call that fails.
 *
 * The value `assert` fails an assertion, and `panic` ends the call with a message. */
#include "weir_guest.h"

WEIR_PROGRAM

static size_t checked_len(const uint8_t *value, size_t len) {
  assert(len != 6 || !weir_equal(value, "assert", 6));
  return len;
}

WEIR_APPLY {
  uint8_t value[16];
  size_t len = checked_len(value, weir_input_read(WEIR_VALUE, 0, value, sizeof value));
  if (len == 5 && weir_equal(value, "panic", 5)) WEIR_PANIC("the value is not `panic`");
  weir_emit_input();
  return 0;
}
