package weir;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * An event store, in a directory that this process has open or at a server. Any number of threads may use it.
 *
 * <p>An interrupt ends a call that waits for a server, or in a reader, member, query over topics or pending
 * verdicts. The call fails with CANCELLED, or with INDETERMINATE for a write that was already sent. The thread
 * stays interrupted, and the handle stays usable. {@link #within} limits the time of calls.
 */
public final class Weir implements AutoCloseable {
    /** Kind of a store that is at a server. */
    private static final int REMOTE = 2;
    /** Default of {@link OpenOptions#interval}. */
    private static final Duration INTERVAL = Duration.ofSeconds(1);
    /** A longer wait is a wait of this time. */
    private static final Duration LONGEST = Duration.ofMillis(Long.MAX_VALUE);

    private final boolean remote;
    private volatile long handle;

    private Weir(long handle, boolean remote) {
        this.handle = handle;
        this.remote = remote;
    }

    /** Opens the store in a directory, or creates one. */
    public static Weir open(Path directory) {
        return open(directory, new OpenOptions());
    }

    /** Opens the store in a directory with options. */
    public static Weir open(Path directory, OpenOptions options) {
        Library.requireLoaded();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Lib.sized(call, 72);
            argument.set(JAVA_INT, 4, options.durability.ordinal());
            boolean needsDefault = options.durability == Durability.INTERVAL && options.interval.isZero();
            argument.set(JAVA_LONG, 8, millis("interval", needsDefault ? INTERVAL : options.interval));
            argument.set(JAVA_INT, 16, (options.existing ? 1 : 0) | (options.orConnect ? 2 : 0));
            Lib.putText(call, argument, 24, options.program);
            argument.set(JAVA_LONG, 40, nonNegative("snapshotLogBytes", options.snapshotLogBytes));
            argument.set(JAVA_LONG, 48, nonNegative("logSegmentBytes", options.logSegmentBytes));
            argument.set(JAVA_LONG, 56, nonNegative("keyBytes", options.keyBytes));
            argument.set(JAVA_LONG, 64, nonNegative("valueBytes", options.valueBytes));
            MemorySegment location = Lib.slice(call, directory.toString());
            MemorySegment out = call.allocate(JAVA_LONG);
            Lib.check(call, error -> (int) Lib.OPEN.invokeExact(location, argument, out, error));
            long store = out.get(JAVA_LONG, 0);
            return new Weir(store, options.orConnect && describe(call, store).get(JAVA_INT, 4) == REMOTE);
        }
    }

    /**
     * Connects to a server at {@code weir://HOST[:PORT]}, {@code weirs://HOST[:PORT]} (TLS) or {@code
     * unix:PATH}.
     */
    public static Weir connect(String address) {
        return connect(address, new ConnectOptions());
    }

    /** Connects to a server with options. */
    public static Weir connect(String address, ConnectOptions options) {
        Library.requireLoaded();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Lib.sized(call, 104);
            argument.set(JAVA_INT, 4, options.received ? 1 : 0);
            Lib.putText(call, argument, 8, options.token);
            Lib.putText(call, argument, 24, options.authority);
            Lib.putText(call, argument, 40, options.certificate);
            Lib.putText(call, argument, 56, options.key);
            Lib.putText(call, argument, 72, options.agent);
            argument.set(JAVA_LONG, 88, millis("connectTimeout", options.connectTimeout));
            argument.set(JAVA_LONG, 96, millis("patience", options.patience));
            MemorySegment location = Lib.slice(call, address);
            MemorySegment out = call.allocate(JAVA_LONG);
            Lib.check(call, error -> (int) Lib.CONNECT.invokeExact(location, argument, out, error));
            return new Weir(out.get(JAVA_LONG, 0), true);
        }
    }

    /** Returns the description of a store. */
    private static MemorySegment describe(Arena call, long store) {
        MemorySegment info = Lib.sized(call, 40);
        Lib.check(call, error -> (int) Lib.DESCRIBE.invokeExact(store, info, error));
        return info;
    }

    /**
     * Returns a second handle whose calls have a deadline. Each call through this handle blocks up to
     * {@code limit} for a server, and then fails with DEADLINE. A write in flight fails with INDETERMINATE, in a
     * directory too. The limit also applies to calls without their own time limit on readers, groups and queries
     * of this handle. Close it after use; the store stays open.
     */
    public Weir within(Duration limit) {
        return new Weir(Wait.within(handle(), millis(limit)), remote);
    }

    /**
     * Returns a second handle whose reads have this consistency. It also applies to readers, groups and queries
     * of this handle. Without it, reads of keys are {@code LINEAR} and all other reads are {@code LOCAL}. Close
     * it after use; the store stays open.
     */
    public Weir withConsistency(Consistency consistency) {
        long store = handle();
        int number = consistency.ordinal() + 1;
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            Lib.check(call, error -> (int) Lib.WITH_CONSISTENCY.invokeExact(store, number, out, error));
            return new Weir(out.get(JAVA_LONG, 0), remote);
        }
    }

    /**
     * For a handle that {@link #within} or {@link #withConsistency} returned: ends the calls that wait through
     * it or through its readers, groups and queries. They, and all further calls, fail with CANCELLED. Any thread
     * may call it.
     */
    public void cancel() {
        int result = Lib.callWithoutError(Lib.CANCEL, handle());
        if (result < 0) {
            ErrorCode code = ErrorCode.of(-result);
            throw new WeirException(code, code.sentence());
        }
    }

    boolean isRemote() {
        return remote;
    }

    /** Makes a call that may wait for a server. */
    int check(Arena call, Wait.At work) {
        long store = handle();
        return remote ? Wait.check(call, store, work) : Lib.check(call, error -> work.run(store, error));
    }

    /** Makes a call that may wait for a server and opens a handle. */
    Handle open(Object owner, Arena call, Wait.At work, MemorySegment out, MethodHandle free) {
        long store = handle();
        if (remote) {
            Wait.open(call, store, work, out, free);
        } else {
            Lib.check(call, error -> work.run(store, error));
        }
        return new Handle(owner, out.get(JAVA_LONG, 0), free);
    }

    /** Converts a duration to milliseconds, rounded up; 0 if it is negative, and at most {@link #LONGEST}. */
    static long millis(Duration span) {
        if (span.isNegative()) {
            return 0;
        }
        return span.compareTo(LONGEST) >= 0 ? Long.MAX_VALUE : span.plusNanos(999_999).toMillis();
    }

    /** Converts a duration to milliseconds, rounded up. Fails if it is negative. */
    static long millis(String what, Duration span) {
        if (span.isNegative()) {
            throw negative(what, span);
        }
        return millis(span);
    }

    /** Returns the number. Fails if it is negative. */
    static long nonNegative(String what, long number) {
        if (number < 0) {
            throw negative(what, number);
        }
        return number;
    }

    private static WeirException negative(String what, Object value) {
        return new WeirException(ErrorCode.BAD_OPTION, what + " is " + value + "; it must not be negative");
    }

    long handle() {
        long open = handle;
        if (open == 0) {
            throw new WeirException(ErrorCode.CLOSED, ErrorCode.CLOSED.sentence());
        }
        return open;
    }

    /** A handle of a topic, which need not exist. It costs nothing. */
    public Topic topic(String name) {
        return new Topic(this, name);
    }

    /** Names of the existing topics, in byte order. */
    public List<String> topics() {
        return topics(0);
    }

    /** Names of all topics, including destroyed ones. */
    public List<String> allTopics() {
        return topics(1);
    }

    private List<String> topics(int withDestroyed) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            int result = check(call, (store, error) -> (int) Lib.TOPICS.invokeExact(store, withDestroyed, out, error));
            List<String> names = new ArrayList<>();
            if (result != Lib.ABSENT) {
                try (Page page = new Page(out.get(JAVA_LONG, 0))) {
                    page.forEach(item -> names.add(item.text()));
                }
            }
            return names;
        }
    }

    /** The id of the store, 16 bytes. Copies of the store have the same id. */
    public byte[] id() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment info = Lib.sized(call, 40);
            check(call, (store, error) -> (int) Lib.DESCRIBE.invokeExact(store, info, error));
            return info.asSlice(24, 16).toArray(JAVA_BYTE);
        }
    }

    /** Executes several intentions independently. Verdicts have the order of the intentions. */
    public List<Verdict> submit(List<Intention> intentions) {
        return Verdicts.submit(this, "", intentions);
    }

    /** Sends intentions and does not wait for their verdicts. */
    public Pending send(List<Intention> intentions) {
        return new Pending(this, intentions);
    }

    /**
     * A query over topics of a directory or a server. It fetches its pages itself, so the caller adds no
     * sources. Its pages and items run to its end.
     */
    public Query query(TopicsOptions topics, QueryOptions options) {
        return new Query(this, topics, options);
    }

    /** Opens the session of a client: 16 bytes, not all zero. One writer at a time may use the id. */
    public Session session(byte[] client) {
        return new Session(this, client);
    }

    /** Makes every acknowledged write durable, at any level. */
    public void sync() {
        try (Arena call = Arena.ofConfined()) {
            check(call, (store, error) -> (int) Lib.SYNC.invokeExact(store, error));
        }
    }

    /**
     * Completes queued writes and closes the store. Pages stay valid; other calls fail. Closing a handle that
     * {@link #within} or {@link #withConsistency} returned only releases the handle.
     */
    @Override
    public synchronized void close() {
        long closing = handle;
        handle = 0;
        if (closing != 0) {
            try (Arena call = Arena.ofConfined()) {
                Lib.check(call, error -> (int) Lib.CLOSE.invokeExact(closing, error));
            }
        }
    }
}
