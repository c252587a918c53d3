package weir;

/** When a write is acknowledged. At every level, a crash leaves a prefix of the writes. */
public enum Durability {
    /** {@link #GROUP}. */
    DEFAULT,
    /** After its sync, which it shares with other waiting writes. */
    GROUP,
    /** After its sync, which it does not share. */
    EACH,
    /** After the write; the sync follows within an interval. */
    INTERVAL,
    /** After the write; there is no sync before the store is closed. */
    MEMORY
}
