package weir;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** A member of a group that works off the records of a topic. Used by one thread at a time. */
public final class Group implements AutoCloseable {
    private static final int DONE = 1;
    private static final int DONE_SOON = 2;
    private static final int FAIL = 3;
    private static final int EXTEND = 4;

    private final Handle handle;
    private final Marks marks;

    /**
     * What a group is now.
     *
     * @param cursor everything up to here is done
     * @param frontier everything after here is new
     * @param last newest record of the topic
     * @param lag offsets that are not done
     * @param leased records that members have
     * @param waiting records that were given back
     * @param redeliveries records that were handed out again
     * @param deaths records that were given up
     * @param letters dead letters that are not written yet
     */
    public record Info(long cursor, long frontier, long last, long lag, long leased, long waiting,
            long redeliveries, long deaths, long letters) {}

    Group(Topic topic, String name, GroupMode mode, GroupOptions options) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment given = Lib.sized(call, 80);
            given.set(JAVA_INT, 4, mode.ordinal() + 1);
            given.set(JAVA_INT, 8, options.existing ? 1 : 0);
            Lib.putText(call, given, 16, options.member);
            given.set(JAVA_LONG, 32, Weir.millis(options.claimLease));
            given.set(JAVA_INT, 12, options.start.kind);
            given.set(JAVA_LONG, 40, options.start.value);
            given.set(JAVA_LONG, 48, Weir.millis(options.lease));
            given.set(JAVA_INT, 56, options.attempts);
            given.set(JAVA_INT, 60, options.pending);
            Lib.putText(call, given, 64, options.deadLetters);
            MemorySegment of = Lib.slice(call, topic.name());
            MemorySegment group = Lib.slice(call, name);
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = topic.store().open(this, call,
                    (store, error) -> (int) Lib.GROUP_OPEN.invokeExact(store, of, group, given, out, error),
                    out, Lib.GROUP_FREE);
            marks = new Marks(handle, Lib.GROUP_CANCEL);
        }
    }

    /** Takes up to so many records; nothing when none came in this time. */
    public Optional<Page> claim(long limit, Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long group = handle.get();
            long time = Weir.millis(wait);
            int result = marks.check(call, error -> (int) Lib.GROUP_CLAIM.invokeExact(group, limit, time, out, error));
            return result == Lib.TIMEOUT ? Optional.empty() : Optional.of(new Page(out.get(JAVA_LONG, 0)));
        }
    }

    /**
     * From any thread: the claim that waits, or else the next one, fails with CANCELLED; at a server so does
     * any other call, INDETERMINATE when it writes and had begun to.
     */
    public void cancel() {
        marks.cancel();
    }

    /** Names all records of a claimed page; may be kept. */
    public static List<Claimed> claimed(Page page) {
        return page.records().stream().map(TopicRecord::claimed).toList();
    }

    /**
     * These are done, for good when this returns; in an exclusive group everything up to the last of
     * them. Offsets of those that are with somebody else by now.
     */
    public List<Long> done(List<Claimed> records) {
        return settle(records, DONE, Duration.ZERO, "");
    }

    /** Acknowledges records of an exclusive group without waiting: written with later ones. */
    public void doneSoon(List<Claimed> records) {
        settle(records, DONE_SOON, Duration.ZERO, "");
    }

    /** Gives records back: they may be claimed again after a delay. The reason is for people. */
    public List<Long> fail(List<Claimed> records, Duration delay, String reason) {
        return settle(records, FAIL, delay, reason);
    }

    /** The member is still at these records: their leases end so long from now. */
    public List<Long> extend(List<Claimed> records, Duration lease) {
        return settle(records, EXTEND, lease, "");
    }

    private List<Long> settle(List<Claimed> records, int verb, Duration span, String reason) {
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
            MemorySegment words = Lib.slice(call, reason);
            long group = handle.get();
            long time = Weir.millis(span);
            marks.check(call, error -> (int) Lib.GROUP_SETTLE.invokeExact(
                    group, claims, (long) size, verb, time, words, lost, count, error));
            for (long at = 0; at < count.get(JAVA_LONG, 0); at++) {
                offsets.add(lost.getAtIndex(JAVA_LONG, at));
            }
        }
        return offsets;
    }

    /** Makes this member the owner of an exclusive group, in place of the present owner. */
    public void takeOver() {
        step(1, From.start());
    }

    /** Gives up an exclusive group, so that another member need not wait. */
    public void leave() {
        step(2, From.start());
    }

    /**
     * Moves the group to a position: everything before it counts as done, and nothing after it. Members lose
     * the records that they have claimed.
     */
    public void reset(From to) {
        step(3, to);
    }

    /** Ends the group for all its members. */
    public void delete() {
        step(4, From.start());
    }

    private void step(int verb, From to) {
        try (Arena call = Arena.ofConfined()) {
            long group = handle.get();
            marks.check(call, error ->
                    (int) Lib.GROUP_STEP.invokeExact(group, verb, to.kind, to.value, error));
        }
    }

    /** What the group is now. */
    public Info info() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = Lib.sized(call, 80);
            long group = handle.get();
            marks.check(call, error -> (int) Lib.GROUP_DESCRIBE.invokeExact(group, out, error));
            return new Info(out.get(JAVA_LONG, 8), out.get(JAVA_LONG, 16), out.get(JAVA_LONG, 24),
                    out.get(JAVA_LONG, 32), out.get(JAVA_LONG, 40), out.get(JAVA_LONG, 48),
                    out.get(JAVA_LONG, 56), out.get(JAVA_LONG, 64), out.get(JAVA_LONG, 72));
        }
    }

    /** Forgets the member. What it claimed stays with it until its leases end. */
    @Override
    public void close() {
        handle.close();
    }
}
