package weir;

/**
 * A step of a transaction.
 *
 * @param key the key; may be empty for a value without one
 * @param value its value; null: the key is removed
 */
public record Change(byte[] key, byte[] value) {}
