package weir;

/**
 * A record that a member of a group has claimed.
 *
 * @param offset the offset of the record in its topic
 * @param claim the number of the claim
 */
public record Claimed(long offset, long claim) {}
