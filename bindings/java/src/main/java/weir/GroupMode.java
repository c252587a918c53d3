package weir;

/** How the members of a group share a topic. */
public enum GroupMode {
    /** One member has it all, in order. */
    EXCLUSIVE,
    /** Records of a key are with one member at a time, in order. */
    KEYED,
    /** Each record is with one member at a time. */
    SHARED
}
