package weir;

/** How much of a page is checked. */
public enum Level {
    /** As the query says; structural if it does not. */
    DEFAULT,
    /** Nothing. */
    NONE,
    /** What boundaries, keys and order depend on. */
    STRUCTURAL,
    /** Every byte. */
    STRICT
}
