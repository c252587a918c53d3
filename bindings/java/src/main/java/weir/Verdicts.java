package weir;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/** Converts intentions for the library, and verdicts from it. */
final class Verdicts {
    private static final long INTENTION = 160;
    private static final long EXPECT = 32;
    private static final long STEP = 56;
    private static final long VERDICT = 64;

    private Verdicts() {}

    /** Executes intentions at a store. */
    static List<Verdict> submit(Weir store, String topic, List<Intention> intentions) {
        try (Arena call = Arena.ofConfined()) {
            int count = intentions.size();
            MemorySegment argument = intentionArray(call, topic, intentions);
            MemorySegment out = verdictArray(call, count);
            MemorySegment texts = call.allocate(JAVA_LONG);
            store.check(call, (to, error) -> (int) Lib.SUBMIT.invokeExact(
                    to, argument, (long) count, out, texts, error));
            return read(out, count, texts.get(JAVA_LONG, 0));
        }
    }

    /** Executes intentions in a session. */
    static List<Verdict> submit(Session session, List<Intention> intentions) {
        try (Arena call = Arena.ofConfined()) {
            int count = intentions.size();
            MemorySegment argument = intentionArray(call, "", intentions);
            MemorySegment out = verdictArray(call, count);
            MemorySegment texts = call.allocate(JAVA_LONG);
            session.check(call, (to, error) -> (int) Lib.SESSION_SUBMIT.invokeExact(
                    to, argument, (long) count, out, texts, error));
            return read(out, count, texts.get(JAVA_LONG, 0));
        }
    }

    static MemorySegment intentionArray(Arena call, String topic, List<Intention> intentions) {
        int count = intentions.size();
        MemorySegment array = call.allocate(INTENTION * Math.max(count, 1), Long.BYTES);
        for (int at = 0; at < count; at++) {
            fill(call, array.asSlice(at * INTENTION, INTENTION), topic, intentions.get(at));
        }
        return array;
    }

    static MemorySegment verdictArray(Arena call, int count) {
        return call.allocate(VERDICT * Math.max(count, 1), Long.BYTES);
    }

    private static void fill(Arena call, MemorySegment into, String topic, Intention from) {
        into.set(JAVA_INT, 0, (int) INTENTION);
        into.set(JAVA_INT, 4, from.operation);
        Lib.putText(call, into, 8, from.topic.isEmpty() ? topic : from.topic);
        Lib.putBytes(call, into, 24, from.key);
        Lib.putBytes(call, into, 40, from.value);
        Lib.putBytes(call, into, 56, from.meta);
        if (!from.expects.isEmpty()) {
            into.set(ADDRESS, 72, expects(call, from.expects));
            into.set(JAVA_LONG, 80, from.expects.size());
        }
        if (!from.changes.isEmpty()) {
            into.set(ADDRESS, 88, steps(call, from.changes));
            into.set(JAVA_LONG, 96, from.changes.size());
        }
        if (from.options != null) {
            into.set(ADDRESS, 104, from.options.fill(call));
        }
        Lib.putBytes(call, into, 112, from.code);
        Lib.putBytes(call, into, 128, from.args);
        Lib.putBytes(call, into, 144, from.replaced);
    }

    private static MemorySegment expects(Arena call, List<Expect> from) {
        MemorySegment array = call.allocate(EXPECT * from.size(), Long.BYTES);
        for (int at = 0; at < from.size(); at++) {
            Expect expect = from.get(at);
            long offset = at * EXPECT;
            array.set(JAVA_INT, offset, expect.kind);
            array.set(JAVA_INT, offset + 4, expect.key == null ? 0 : 1);
            Lib.putBytes(call, array, offset + 8, expect.key);
            array.set(JAVA_LONG, offset + 24, expect.offset);
        }
        return array;
    }

    private static MemorySegment steps(Arena call, List<Change> from) {
        MemorySegment array = call.allocate(STEP * from.size(), Long.BYTES);
        for (int at = 0; at < from.size(); at++) {
            Change change = from.get(at);
            long offset = at * STEP;
            array.set(JAVA_INT, offset, change.value() == null ? Intention.DELETE : Intention.PUT);
            Lib.putBytes(call, array, offset + 8, change.key());
            Lib.putBytes(call, array, offset + 24, change.value());
            Lib.putBytes(call, array, offset + 40, change.meta());
        }
        return array;
    }

    static List<Verdict> read(MemorySegment out, int count, long texts) {
        List<Verdict> verdicts = new ArrayList<>(count);
        try (Page page = texts == 0 ? null : new Page(texts)) {
            for (int at = 0; at < count; at++) {
                String text = page == null ? "" : page.get(at).text();
                verdicts.add(read(out.asSlice(at * VERDICT, VERDICT), text));
            }
        }
        return verdicts;
    }

    private static Verdict read(MemorySegment from, String text) {
        Verdict.Kind[] kinds = Verdict.Kind.values();
        int kind = Math.clamp(from.get(JAVA_INT, 56), 0, kinds.length - 1);
        Verdict.Detail detail = new Verdict.Detail(kinds[kind], from.get(JAVA_LONG, 40),
                code(from.get(JAVA_INT, 60)), text);
        int effect = Math.clamp(from.get(JAVA_INT, 0) - 1, 0, Effect.values().length - 1);
        return new Verdict(Effect.values()[effect], code(from.get(JAVA_INT, 4)), from.get(JAVA_LONG, 8),
                from.get(JAVA_LONG, 16), from.get(JAVA_INT, 48), from.get(JAVA_LONG, 24),
                (from.get(JAVA_INT, 52) & 1) != 0, from.get(JAVA_LONG, 32), detail);
    }

    private static ErrorCode code(int number) {
        return number == 0 ? null : ErrorCode.of(Math.abs(number));
    }
}
