package weir;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;

/** Selects the records of a query over topics. */
public final class TopicsOptions {
    private static final long BYTES = 64;
    private static final int AS_OF = 1;
    private static final int FOLLOW = 2;

    private final List<String> topics;
    private From from = From.start();
    private boolean latest;
    private long asOf;
    private boolean follow;
    private int kinds;
    private boolean resetEarliest;
    private Duration patience = Duration.ZERO;

    /** Topics by name or pattern: {@code orders.*} matches one more part, {@code orders.**} any number of parts. */
    public TopicsOptions(String... topics) {
        this.topics = List.of(topics);
    }

    /**
     * The first record of each topic; by default the first retained record. A topic that is created after the
     * query starts is read from its start. A query that resumes from a token ignores the position. Not with
     * {@link #latest}.
     */
    public TopicsOptions from(From from) {
        this.from = from;
        return this;
    }

    /** Makes the current value of each key an item. By default, each record is an item. */
    public TopicsOptions latest() {
        latest = true;
        return this;
    }

    /**
     * The last intention whose records are included. Default: all records that exist when the query starts. Not with
     * {@link #follow}.
     */
    public TopicsOptions asOf(long intention) {
        asOf = intention;
        return this;
    }

    /** Continues with new records until the query is cancelled or closed. */
    public TopicsOptions follow() {
        follow = true;
        return this;
    }

    /** The kinds of records that are items. Default: PUT. */
    public TopicsOptions kinds(TopicRecord.Kind... wanted) {
        for (TopicRecord.Kind kind : wanted) {
            kinds |= 2 << kind.ordinal();
        }
        return this;
    }

    /** If the next record of a token was removed, continues with the first retained record. */
    public TopicsOptions resetEarliest() {
        resetEarliest = true;
        return this;
    }

    /** Maximum time of one wait for records that exist. Default: 30 s. */
    public TopicsOptions patience(Duration patience) {
        this.patience = patience;
        return this;
    }

    MemorySegment fill(Arena call) {
        if (follow && asOf != 0) {
            throw new WeirException(ErrorCode.BAD_OPTION, "a query that follows has no asOf");
        }
        MemorySegment into = Lib.sized(call, BYTES);
        into.set(JAVA_INT, 4, latest ? 1 : 0);
        into.set(ADDRESS, 8, Lib.texts(call, topics));
        into.set(JAVA_LONG, 16, topics.size());
        into.set(JAVA_INT, 24, follow ? FOLLOW : asOf != 0 ? AS_OF : 0);
        into.set(JAVA_INT, 28, kinds);
        into.set(JAVA_LONG, 32, Weir.nonNegative("asOf", asOf));
        into.set(JAVA_INT, 40, resetEarliest ? 1 : 0);
        into.set(JAVA_INT, 44, from.kind);
        into.set(JAVA_LONG, 48, Weir.millis("patience", patience));
        into.set(JAVA_LONG, 56, from.value);
        return into;
    }
}
