package weir;

/** What the store keeps of a topic's program between its calls. */
public enum ProgramState {
    /** As the store says: {@link #KEYS}. */
    DEFAULT,
    /** Nothing. */
    NONE,
    /** Keys with values, by functions that the program calls. */
    KEYS,
    /** Its memory. */
    MEMORY
}
