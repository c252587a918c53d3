package weir;

/** The order of the results. */
public enum Mode {
    /** By source without an order, otherwise a merge or a sort. */
    DEFAULT,
    /** All of the first source, then all of the next. */
    SEQUENTIAL,
    /** In the order in which pages arrive. */
    ARRIVAL,
    /** One item of each source in turn. */
    ROUND_ROBIN,
    /** By the order; every source is sorted. */
    MERGE,
    /** By the order; stores all items, or offset plus limit of them. */
    SORT
}
