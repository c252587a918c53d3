package weir;

/** The state of a topic's program that the store retains between its calls. */
public enum ProgramState {
    /** The default of the store: {@link #KEYS}. */
    DEFAULT,
    /** Nothing. */
    NONE,
    /** Keys with values, which the program reads and writes with functions. */
    KEYS,
    /** The memory of the program. */
    MEMORY
}
