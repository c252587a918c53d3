package weir;

/** How the members of a group share a topic. */
public enum GroupMode {
    /** One member gets all records, in order. */
    EXCLUSIVE,
    /** One member at a time gets the records of a key, in order. */
    KEYED,
    /** One member at a time gets a record. */
    SHARED
}
