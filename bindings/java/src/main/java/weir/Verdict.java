package weir;

/**
 * The final answer to an intention. A "no" is a value, not an exception.
 *
 * @param effect what became of the intention
 * @param reason why it is not VALID; null when it is
 * @param intention its place in the order of the whole store
 * @param offset that of its first record; 0 without one
 * @param records number of its records
 * @param nonce its number in its session; 0 without one
 * @param replayed whether it was carried out when it was sent before
 * @param fuel what the topic's program used
 * @param detail more about the reason
 */
public record Verdict(Effect effect, ErrorCode reason, long intention, long offset, int records,
        long nonce, boolean replayed, long fuel, Detail detail) {
    /** What a detail is about. */
    public enum Kind {
        /** Nothing. */
        NONE,
        /** The number is the offset that a failed condition found. */
        ACTUAL,
        /** The number is the limit that was exceeded. */
        LIMIT,
        /** The number is the step that failed, the reason says why. */
        STEP,
        /** The number is the code that the program gave, the text its words. */
        REJECTED,
        /** The number is that of the trap, the text its name. */
        TRAP,
        /** The text says it. */
        TEXT,
        /** The number is the next nonce that would be taken. */
        NONCE,
        /** Something that this package does not know. */
        OTHER
    }

    /**
     * More about the reason of a verdict.
     *
     * @param kind what it is about
     * @param number a number
     * @param reason of a step; else null
     * @param text a text; may be empty
     */
    public record Detail(Kind kind, long number, ErrorCode reason, String text) {}

    /** Whether the intention was carried out. */
    public boolean isValid() {
        return effect == Effect.VALID;
    }

    /** Returns this verdict if it is VALID. */
    public Verdict orThrow() {
        if (isValid()) {
            return this;
        }
        throw new WeirException(reason, (reason.sentence() + " " + detail.text()).strip());
    }
}
