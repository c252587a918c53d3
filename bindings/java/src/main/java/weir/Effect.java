package weir;

/** The outcome of an intention. */
public enum Effect {
    /** It was executed. */
    VALID,
    /** It was understood and rejected. */
    INVALID,
    /** It could not be executed. */
    ERROR,
    /** It was not attempted: its number in the session is not the next one. */
    REFUSED
}
