package weir;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** A member of a group that processes the records of a topic. One thread at a time may use it. */
public final class Group implements AutoCloseable {
    private static final int DONE = 1;
    private static final int DONE_SOON = 2;
    private static final int FAIL = 3;
    private static final int EXTEND = 4;

    private final Handle handle;
    private final CancelMark cancelMark;

    /**
     * The state of a group.
     *
     * @param cursor all records up to this offset are acknowledged
     * @param frontier no record after this offset was delivered
     * @param last offset of the newest record of the topic
     * @param lag number of offsets that are not acknowledged
     * @param leased number of records that members have claimed
     * @param waiting number of delivered records that are neither acknowledged nor claimed
     * @param redeliveries number of records that were delivered again
     * @param deadLettered number of records that became dead letters
     * @param unwrittenDeadLetters number of dead letters that are not written yet
     */
    public record Info(long cursor, long frontier, long last, long lag, long leased, long waiting,
            long redeliveries, long deadLettered, long unwrittenDeadLetters) {}

    Group(Topic topic, String name, GroupMode mode, GroupOptions options) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Lib.sized(call, 80);
            argument.set(JAVA_INT, 4, mode.ordinal() + 1);
            argument.set(JAVA_INT, 8, options.existing ? 1 : 0);
            Lib.putText(call, argument, 16, options.member);
            argument.set(JAVA_LONG, 32, Weir.millis("claimLease", options.claimLease));
            argument.set(JAVA_INT, 12, options.start.kind);
            argument.set(JAVA_LONG, 40, options.start.value);
            argument.set(JAVA_LONG, 48, Weir.millis("lease", options.lease));
            argument.set(JAVA_INT, 56, (int) Weir.nonNegative("attempts", options.attempts));
            argument.set(JAVA_INT, 60, (int) Weir.nonNegative("pending", options.pending));
            Lib.putText(call, argument, 64, options.deadLetters);
            MemorySegment of = Lib.slice(call, topic.name());
            MemorySegment group = Lib.slice(call, name);
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = topic.store().open(this, call,
                    (store, error) -> (int) Lib.GROUP_OPEN.invokeExact(store, of, group, argument, out, error),
                    out, Lib.GROUP_FREE);
            cancelMark = new CancelMark(handle, Lib.GROUP_CANCEL);
        }
    }

    /** Claims up to {@code limit} records; empty if no record arrives within {@code wait}. */
    public Optional<Page> claim(long limit, Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long group = handle.get();
            long count = Weir.nonNegative("limit", limit);
            long time = Weir.millis(wait);
            int result = cancelMark.check(call,
                    error -> (int) Lib.GROUP_CLAIM.invokeExact(group, count, time, out, error));
            return result == Lib.TIMEOUT ? Optional.empty() : Optional.of(new Page(out.get(JAVA_LONG, 0)));
        }
    }

    /**
     * Cancels the claim that waits, or else the next claim, which fails with CANCELLED. Any thread may call it.
     * At a server, it cancels any other call as well. A write that has begun fails with INDETERMINATE.
     */
    public void cancel() {
        cancelMark.cancel();
    }

    /** The claims of all records of a claimed page; valid after the page is closed. */
    public static List<Claimed> claimed(Page page) {
        return page.records().stream().map(TopicRecord::claimed).toList();
    }

    /**
     * Acknowledges records; the acknowledgement is durable when this returns. In an exclusive group, this
     * acknowledges every record up to the last one. Returns the offsets of records that another member has
     * claimed by now.
     */
    public List<Long> done(List<Claimed> records) {
        return settle(records, DONE, 0, "");
    }

    /** Acknowledges records of an exclusive group without waiting: written with later ones. */
    public void doneSoon(List<Claimed> records) {
        settle(records, DONE_SOON, 0, "");
    }

    /** Returns records to the group, which can deliver them again after the delay. The reason is for people. */
    public List<Long> fail(List<Claimed> records, Duration delay, String reason) {
        return settle(records, FAIL, Weir.millis("delay", delay), reason);
    }

    /** Extends the leases of claims of this member: each now ends after {@code lease}. */
    public List<Long> extend(List<Claimed> records, Duration lease) {
        return settle(records, EXTEND, Weir.millis("lease", lease), "");
    }

    private List<Long> settle(List<Claimed> records, int verb, long millis, String reason) {
        List<Long> offsets = new ArrayList<>();
        if (records.isEmpty()) {
            return offsets;
        }
        try (Arena call = Arena.ofConfined()) {
            int size = records.size();
            MemorySegment claims = call.allocate(JAVA_LONG, 2L * size);
            for (int at = 0; at < size; at++) {
                claims.setAtIndex(JAVA_LONG, 2L * at, records.get(at).offset());
                claims.setAtIndex(JAVA_LONG, 2L * at + 1, records.get(at).claim());
            }
            MemorySegment lost = call.allocate(JAVA_LONG, size);
            MemorySegment count = call.allocate(JAVA_LONG);
            MemorySegment reasonSlice = Lib.slice(call, reason);
            long group = handle.get();
            cancelMark.check(call, error -> (int) Lib.GROUP_SETTLE.invokeExact(
                    group, claims, (long) size, verb, millis, reasonSlice, lost, count, error));
            for (long at = 0; at < count.get(JAVA_LONG, 0); at++) {
                offsets.add(lost.getAtIndex(JAVA_LONG, at));
            }
        }
        return offsets;
    }

    /** Makes this member the owner of an exclusive group and replaces the present owner. */
    public void takeOver() {
        step(1, From.start());
    }

    /** Gives up the ownership of an exclusive group, so that another member need not wait. */
    public void leave() {
        step(2, From.start());
    }

    /**
     * Moves the group to a position: all earlier records count as acknowledged, all later ones as not acknowledged.
     * Members lose the records that they have claimed.
     */
    public void reset(From to) {
        step(3, to);
    }

    /** Deletes the group for all its members. */
    public void delete() {
        step(4, From.start());
    }

    private void step(int verb, From to) {
        try (Arena call = Arena.ofConfined()) {
            long group = handle.get();
            cancelMark.check(call, error ->
                    (int) Lib.GROUP_STEP.invokeExact(group, verb, to.kind, to.value, error));
        }
    }

    /** The state of the group. */
    public Info info() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = Lib.sized(call, 80);
            long group = handle.get();
            cancelMark.check(call, error -> (int) Lib.GROUP_DESCRIBE.invokeExact(group, out, error));
            return new Info(out.get(JAVA_LONG, 8), out.get(JAVA_LONG, 16), out.get(JAVA_LONG, 24),
                    out.get(JAVA_LONG, 32), out.get(JAVA_LONG, 40), out.get(JAVA_LONG, 48),
                    out.get(JAVA_LONG, 56), out.get(JAVA_LONG, 64), out.get(JAVA_LONG, 72));
        }
    }

    /** Closes the member. Its claims remain until their leases end. */
    @Override
    public void close() {
        handle.close();
    }
}
