package weir;

/**
 * Limits of the memory of a query; 0 is the default of each.
 */
public final class Budgets {
    long bufferBytes = 0;
    int pagesAhead = 0;
    long sortBytes = 0;
    long groups = 0;
    long distinctValues = 0;
    long sources = 0;
    long pageBytes = 0;
    long itemBytes = 0;
    int depth = 0;
    long pageHint = 0;

    /** All defaults. */
    public Budgets() {}

    /** Bytes of all referenced pages, including those of result pages. */
    public Budgets bufferBytes(long bufferBytes) {
        this.bufferBytes = bufferBytes;
        return this;
    }

    /** How many pages of each source are requested ahead of the current page; -1: none. */
    public Budgets pagesAhead(int pagesAhead) {
        this.pagesAhead = pagesAhead;
        return this;
    }

    /** Bytes of a sort: pages, and the data about each of their items. */
    public Budgets sortBytes(long sortBytes) {
        this.sortBytes = sortBytes;
        return this;
    }

    /** Number of groups that are stored at a time. */
    public Budgets groups(long groups) {
        this.groups = groups;
        return this;
    }

    /** Number of distinct values that are stored at a time. */
    public Budgets distinctValues(long distinctValues) {
        this.distinctValues = distinctValues;
        return this;
    }

    /** Number of sources, including finished ones. */
    public Budgets sources(long sources) {
        this.sources = sources;
        return this;
    }

    /** Bytes of one page. */
    public Budgets pageBytes(long pageBytes) {
        this.pageBytes = pageBytes;
        return this;
    }

    /** Bytes of one item. */
    public Budgets itemBytes(long itemBytes) {
        this.itemBytes = itemBytes;
        return this;
    }

    /** Levels of nesting in a page. */
    public Budgets depth(int depth) {
        this.depth = depth;
        return this;
    }

    /** The size in bytes that a {@link Need} suggests for a page. */
    public Budgets pageHint(long pageHint) {
        this.pageHint = pageHint;
        return this;
    }
}
