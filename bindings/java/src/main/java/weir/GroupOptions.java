package weir;

import java.time.Duration;

/** Options of a member of a group, and of the group if the call creates it. */
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

    /** Name of the member, 1 to 64 bytes. Empty: a name from the process and the time. */
    public GroupOptions member(String member) {
        this.member = member;
        return this;
    }

    /** Lease of the claims of this member; 0: the lease of the group. */
    public GroupOptions claimLease(Duration claimLease) {
        this.claimLease = claimLease;
        return this;
    }

    /** Makes the call fail if the group does not exist. */
    public GroupOptions existing() {
        existing = true;
        return this;
    }

    /** The position at which a new group starts; by default the first record. */
    public GroupOptions start(From start) {
        this.start = start;
        return this;
    }

    /** How long a member may be silent before its claims end (30 s). */
    public GroupOptions lease(Duration lease) {
        this.lease = lease;
        return this;
    }

    /** How often a record is delivered before it becomes a dead letter; 0: no limit. */
    public GroupOptions attempts(int attempts) {
        this.attempts = attempts;
        return this;
    }

    /** The topic for dead letters. */
    public GroupOptions deadLetters(String deadLetters) {
        this.deadLetters = deadLetters;
        return this;
    }

    /** How many records all members together may have claimed (100,000). */
    public GroupOptions pending(int pending) {
        this.pending = pending;
        return this;
    }
}
