package weir;

/** What {@link Query#next()} came to. */
public sealed interface Step {
    /**
     * There are results.
     *
     * @param page the receiver's, to be closed
     */
    record Ready(Page page) implements Step {}

    /**
     * Nothing can be said before pages come; {@link Query#needs} says which. Over topics: no record came
     * in time.
     */
    record Needing() implements Step {}

    /** That was all. */
    record Done() implements Step {}
}
