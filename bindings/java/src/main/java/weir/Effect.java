package weir;

/** What became of an intention. */
public enum Effect {
    /** It was carried out. */
    VALID,
    /** It was understood, and said no to. */
    INVALID,
    /** It could not be carried out. */
    ERROR,
    /** It was not tried: its number in the session is not the next one. */
    REFUSED
}
