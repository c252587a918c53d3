package weir;

/** The treatment of items without an order key. */
public enum MissingKeys {
    /** They sort before all other items. */
    FIRST,
    /** They are skipped. */
    DROP
}
