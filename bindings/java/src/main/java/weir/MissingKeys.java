package weir;

/** What becomes of items without an order key. */
public enum MissingKeys {
    /** They sort before everything else. */
    FIRST,
    /** They are left out. */
    DROP
}
