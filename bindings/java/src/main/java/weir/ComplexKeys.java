package weir;

/** The treatment of arrays and objects as order keys. */
public enum ComplexKeys {
    /** An error. */
    ERROR,
    /** All arrays are equal, and all objects are equal. */
    RANK
}
