/* Seats of one show: the first booking wins, until the seat is released.
 *
 * A key is a seat such as `12A`. Its value is the name of the person who booked
 * it. A DELETE releases the seat. */
#include "weir_guest.h"

WEIR_PROGRAM

static int is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

/* A row from 1 to 99 and a letter from A to F. */
static int is_seat(const uint8_t *seat, size_t len) {
  if (len < 2 || len > 3 || seat[0] == '0' || !is_digit(seat[0])) return 0;
  if (len == 3 && !is_digit(seat[1])) return 0;
  return seat[len - 1] >= 'A' && seat[len - 1] <= 'F';
}

/* Validates one write. The emitted record is stored. */
WEIR_APPLY {
  weir_input input;
  uint8_t seat[4];
  weir_input_info(&input);
  size_t len = weir_input_read(WEIR_KEY, 0, seat, sizeof seat);
  if (!is_seat(seat, len)) {
    return WEIR_REJECT(1, "a seat is a row from 1 to 99 and a letter from A to F");
  }
  int taken = weir_key_offset(seat, len) != 0;
  if (input.op == WEIR_OP_DELETE) {
    if (!taken) return WEIR_REJECT(3, "nobody has this seat");
  } else if (taken) {
    return WEIR_REJECT(2, "the seat is taken");
  } else if (input.value_len < 1 || input.value_len > 64) {
    return WEIR_REJECT(4, "a name of 1 to 64 bytes");
  }
  weir_emit_input();
  return 0;
}
