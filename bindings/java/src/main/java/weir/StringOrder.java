package weir;

/** How strings are ordered. */
public enum StringOrder {
    /** By Unicode scalar values. */
    SCALAR,
    /** By UTF-16 code units, as some services do. */
    UTF16
}
