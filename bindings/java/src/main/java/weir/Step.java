package weir;

/** The result of {@link Query#next()}. */
public sealed interface Step {
    /**
     * There are results.
     *
     * @param page the page, which the caller must close
     */
    record Ready(Page page) implements Step {}

    /**
     * The query needs pages to continue; see {@link Query#needs}. In a query over topics: no record arrived in
     * time.
     */
    record Needing() implements Step {}

    /** There are no more results. */
    record Done() implements Step {}
}
