package weir;

/** How much of a page is checked. */
public enum Level {
    /** The level of the query; structural if it has none. */
    DEFAULT,
    /** Nothing. */
    NONE,
    /** All that boundaries, keys and order depend on. */
    STRUCTURAL,
    /** Every byte. */
    STRICT
}
