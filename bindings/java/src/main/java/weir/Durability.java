package weir;

/** When a write is answered. What a crash leaves is a prefix of what was written, at every level. */
public enum Durability {
    /** {@link #GROUP}. */
    DEFAULT,
    /** When it is synced, together with what else waits. */
    GROUP,
    /** When it is synced, by itself. */
    EACH,
    /** When it is written; synced after a time. */
    INTERVAL,
    /** When it is written; not synced before the store is closed. */
    MEMORY
}
