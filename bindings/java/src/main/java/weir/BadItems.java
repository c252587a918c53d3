package weir;

/** The treatment of items that are not JSON, in shapes that have separate items. */
public enum BadItems {
    /** Their page is rejected. */
    ERROR,
    /** They are skipped and counted. */
    SKIP,
    /** They have no values. */
    UNDEFINED
}
