package weir;

/**
 * The final result of an intention. A rejection is a value, not an exception.
 *
 * @param effect the outcome of the intention
 * @param reason why it is not VALID; null if it is VALID
 * @param intention the position of the intention in the order of the whole store
 * @param offset the offset of the first record; 0 if there is none
 * @param records the number of records
 * @param nonce the number of the intention in its session; 0 without a session
 * @param replayed whether an earlier request with this number was already executed
 * @param fuel the fuel that the program of the topic used
 * @param detail more about the reason
 */
public record Verdict(Effect effect, ErrorCode reason, long intention, long offset, int records,
        long nonce, boolean replayed, long fuel, Detail detail) {
    /** The kind of a detail. */
    public enum Kind {
        /** Nothing. */
        NONE,
        /** The number is the offset that a failed condition found. */
        ACTUAL,
        /** The number is the limit that was exceeded. */
        LIMIT,
        /** The number is the step that failed, the reason is the cause. */
        STEP,
        /** The number is the code that the program returned, the text its message. */
        REJECTED,
        /** The number is the number of the trap, the text its name. */
        TRAP,
        /** The text is the description. */
        TEXT,
        /** The number is the next nonce that would be accepted. */
        NONCE,
        /** A kind that this package does not know. */
        OTHER
    }

    /**
     * More about the reason of a verdict.
     *
     * @param kind the kind of the detail
     * @param number a number whose meaning depends on the kind
     * @param reason why a step failed; otherwise null
     * @param text a text; may be empty
     */
    public record Detail(Kind kind, long number, ErrorCode reason, String text) {}

    /** Whether the intention was executed. */
    public boolean isValid() {
        return effect == Effect.VALID;
    }

    /** Returns this verdict if it is VALID, and otherwise throws its reason. */
    public Verdict orThrow() {
        if (isValid()) {
            return this;
        }
        throw new WeirException(reason, (reason.sentence() + " " + detail.text()).strip());
    }
}
