package weir;

import java.time.Duration;

/** A member of a group, and the group if it is made now. */
public final class GroupOptions {
    String member = "";
    Duration claimLease = Duration.ZERO;
    boolean existing;
    From start = From.start();
    Duration lease = Duration.ZERO;
    int attempts = 0;
    String deadLetters = "";
    int pending = 0;

    /** All defaults. */
    public GroupOptions() {}

    /** Name of the member, 1 to 64 bytes; empty: made of process and time. */
    public GroupOptions member(String member) {
        this.member = member;
        return this;
    }

    /** For how long this member claims; 0: the lease of the group. */
    public GroupOptions claimLease(Duration claimLease) {
        this.claimLease = claimLease;
        return this;
    }

    /** A group that is not there is an error. */
    public GroupOptions existing() {
        existing = true;
        return this;
    }

    /** The position at which a group that is made now starts; by default the first record. */
    public GroupOptions start(From start) {
        this.start = start;
        return this;
    }

    /** For how long a member may be silent (30 s). */
    public GroupOptions lease(Duration lease) {
        this.lease = lease;
        return this;
    }

    /** How often a record is handed out before it goes to the dead letters; 0: without end. */
    public GroupOptions attempts(int attempts) {
        this.attempts = attempts;
        return this;
    }

    /** Topic for records that were handed out too often. */
    public GroupOptions deadLetters(String deadLetters) {
        this.deadLetters = deadLetters;
        return this;
    }

    /** How many records members may have together (100,000). */
    public GroupOptions pending(int pending) {
        this.pending = pending;
        return this;
    }
}
