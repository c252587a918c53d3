package weir;

/** What becomes of items that are not JSON, where each item stands alone. */
public enum BadItems {
    /** Their page is refused. */
    ERROR,
    /** They are left out and counted. */
    SKIP,
    /** They have no values. */
    UNDEFINED
}
