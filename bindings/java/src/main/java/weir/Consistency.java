package weir;

/** Which writes a read at a cluster sees. For a directory or a single server, all values are equivalent. */
public enum Consistency {
    /** Those that the node has applied. */
    LOCAL,
    /** Those that the leader has applied, while its lease is valid. */
    LEADER,
    /** All that were acknowledged anywhere before the read began. */
    LINEAR
}
