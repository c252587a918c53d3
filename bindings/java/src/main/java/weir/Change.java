package weir;

/**
 * A step of a transaction.
 *
 * @param key the key; may be empty if there is a value
 * @param value the new value; null deletes the key
 * @param meta metadata that is stored with the record and not interpreted by the store; null for none
 */
public record Change(byte[] key, byte[] value, byte[] meta) {
    /** Without meta. */
    public Change(byte[] key, byte[] value) {
        this(key, value, null);
    }
}
