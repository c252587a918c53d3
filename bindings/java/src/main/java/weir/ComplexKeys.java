package weir;

/** What arrays and objects as order keys are. */
public enum ComplexKeys {
    /** An error. */
    ERROR,
    /** All arrays are equal, and all objects. */
    RANK
}
