package weir;

/**
 * A step of a transaction.
 *
 * @param key the key; may be empty for a value without one
 * @param value its value; null: the key is removed
 * @param meta what goes with the record and is not read by the store; null for nothing
 */
public record Change(byte[] key, byte[] value, byte[] meta) {
    /** Without meta. */
    public Change(byte[] key, byte[] value) {
        this(key, value, null);
    }
}
