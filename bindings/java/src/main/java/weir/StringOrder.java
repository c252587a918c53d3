package weir;

/** The order of strings. */
public enum StringOrder {
    /** By Unicode scalar values. */
    SCALAR,
    /** By UTF-16 code units, as some services do. */
    UTF16
}
