package weir;

/**
 * A record that a member of a group has.
 *
 * @param offset its place in the topic
 * @param claim what it was claimed with
 */
public record Claimed(long offset, long claim) {}
