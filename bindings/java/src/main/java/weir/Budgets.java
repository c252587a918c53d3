package weir;

/**
 * Bounds of what a query holds; 0 is the default of each.
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

    /** Bytes of all pages that are referenced, by result pages too. */
    public Budgets bufferBytes(long bufferBytes) {
        this.bufferBytes = bufferBytes;
        return this;
    }

    /** Pages asked for ahead of the one in use, of each source; -1: none. */
    public Budgets pagesAhead(int pagesAhead) {
        this.pagesAhead = pagesAhead;
        return this;
    }

    /** Bytes that a sort holds: pages, and what is known of each of their items. */
    public Budgets sortBytes(long sortBytes) {
        this.sortBytes = sortBytes;
        return this;
    }

    /** Groups at a time. */
    public Budgets groups(long groups) {
        this.groups = groups;
        return this;
    }

    /** Distinct values at a time. */
    public Budgets distinctValues(long distinctValues) {
        this.distinctValues = distinctValues;
        return this;
    }

    /** Sources, finished ones included. */
    public Budgets sources(long sources) {
        this.sources = sources;
        return this;
    }

    /** Bytes in one page. */
    public Budgets pageBytes(long pageBytes) {
        this.pageBytes = pageBytes;
        return this;
    }

    /** Bytes in one item. */
    public Budgets itemBytes(long itemBytes) {
        this.itemBytes = itemBytes;
        return this;
    }

    /** Levels of nesting in a page. */
    public Budgets depth(int depth) {
        this.depth = depth;
        return this;
    }

    /** What a need suggests as the size of a page, in bytes. */
    public Budgets pageHint(long pageHint) {
        this.pageHint = pageHint;
        return this;
    }
}
