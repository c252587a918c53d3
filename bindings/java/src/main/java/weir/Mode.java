package weir;

/** The order in which results come. */
public enum Mode {
    /** By source without an order, else a merge or a sort. */
    DEFAULT,
    /** All of the first source, then all of the next. */
    SEQUENTIAL,
    /** As pages come. */
    ARRIVAL,
    /** One item of each source in turn. */
    ROUND_ROBIN,
    /** By the order; every source is sorted. */
    MERGE,
    /** By the order; everything is held, or offset and limit. */
    SORT
}
