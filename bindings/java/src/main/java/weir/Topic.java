package weir;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.Flow;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A handle of a topic of a store; the topic need not exist. A write blocks until its verdict. At the default
 * durability, the write is then synced to disk.
 *
 * @param store the store
 * @param name the name of the topic
 */
public record Topic(Weir store, String name) {
    private static final long SCAN_KEYS = 1000;

    /**
     * The state of a topic.
     *
     * @param live whether the topic exists; otherwise it was destroyed
     * @param incarnation the intention that created it
     * @param first offset of the oldest retained record
     * @param last offset of the newest record
     * @param keys number of keys with a value
     * @param bytes size of the records
     */
    public record Info(boolean live, long incarnation, long first, long last, long keys, long bytes) {}

    /** Creates the topic if it does not exist. Returns true if this call created it. */
    public boolean ensure() {
        return ensure(null);
    }

    /** Like {@link #ensure()}. The options apply only to a topic that this call creates. */
    public boolean ensure(TopicOptions options) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = options == null ? MemorySegment.NULL : options.fill(call);
            MemorySegment topic = Lib.slice(call, name);
            MemorySegment out = call.allocate(JAVA_INT);
            store.check(call, (from, error) -> (int) Lib.TOPIC_ENSURE.invokeExact(from, topic, argument, out, error));
            return out.get(JAVA_INT, 0) != 0;
        }
    }

    /** The state of the topic; empty if the topic was never created. */
    public Optional<Info> info() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment topic = Lib.slice(call, name);
            MemorySegment out = Lib.sized(call, 56);
            int result = store.check(call,
                    (from, error) -> (int) Lib.TOPIC_DESCRIBE.invokeExact(from, topic, out, error));
            if (result == Lib.ABSENT) {
                return Optional.empty();
            }
            return Optional.of(new Info(out.get(JAVA_INT, 4) != 0, out.get(JAVA_LONG, 16),
                    out.get(JAVA_LONG, 24), out.get(JAVA_LONG, 32), out.get(JAVA_LONG, 40),
                    out.get(JAVA_LONG, 48)));
        }
    }

    /** Creates the topic. If it exists, the verdict is INVALID with TOPIC_EXISTS. */
    public Verdict create(TopicOptions options) {
        return one(Intention.create(options));
    }

    /**
     * Creates the topic with a program, a WebAssembly module. The program accepts or rejects each intention,
     * and may write other records than the requested one. {@code args} are its arguments.
     */
    public Verdict create(TopicOptions options, byte[] program, byte[] args) {
        return one(Intention.create(options, program, args));
    }

    /** Replaces the program of the topic. Records of the former program remain. */
    public Verdict replace(byte[] program, byte[] args) {
        return one(Intention.replace(program, args));
    }

    /** Destroys the topic and its keys. If the topic is created again, its offsets continue after the old ones. */
    public Verdict destroy() {
        return one(Intention.destroy());
    }

    /** Replaces the options of the topic. */
    public Verdict alter(TopicOptions options) {
        return one(Intention.alter(options));
    }

    /** Writes a record without a key. */
    public Verdict append(byte[] value) {
        return put(new byte[0], value);
    }

    /** Writes a record and sets its key. */
    public Verdict put(byte[] key, byte[] value) {
        return one(Intention.put(key, value));
    }

    /** Puts the record if all conditions hold. Otherwise INVALID with CONFLICT and the offset that was found. */
    public Verdict putIf(byte[] key, byte[] value, Expect... expects) {
        return one(Intention.put(key, value).expecting(expects));
    }

    /** Deletes a key. The verdict is VALID even if the key has no value. */
    public Verdict delete(byte[] key) {
        return one(Intention.delete(key));
    }

    /** Executes all changes, in order, or none. */
    public Verdict transaction(List<Change> changes, Expect... expects) {
        return one(Intention.transaction(changes).expecting(expects));
    }

    /** Executes several intentions independently: some may be VALID and others not. */
    public List<Verdict> batch(List<Intention> intentions) {
        return Verdicts.submit(store, name, intentions);
    }

    private Verdict one(Intention intention) {
        return batch(List.of(intention)).getFirst();
    }

    /** A copy of the record with the current value of a key. */
    public Optional<Stored> get(byte[] key) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment topic = Lib.slice(call, name);
            MemorySegment keySlice = Lib.slice(call, key);
            MemorySegment out = call.allocate(JAVA_LONG);
            int result = store.check(call,
                    (from, error) -> (int) Lib.GET.invokeExact(from, topic, keySlice, out, error));
            return copyOf(result, out);
        }
    }

    /** A copy of the record at an offset. */
    public Optional<Stored> at(long offset) {
        Weir.nonNegative("offset", offset);
        try (Arena call = Arena.ofConfined()) {
            MemorySegment topic = Lib.slice(call, name);
            MemorySegment out = call.allocate(JAVA_LONG);
            int result = store.check(call,
                    (from, error) -> (int) Lib.AT.invokeExact(from, topic, offset, out, error));
            return copyOf(result, out);
        }
    }

    private static Optional<Stored> copyOf(int result, MemorySegment out) {
        if (result == Lib.ABSENT) {
            return Optional.empty();
        }
        try (Page page = new Page(out.get(JAVA_LONG, 0))) {
            return Optional.of(page.records().getFirst().copy());
        }
    }

    /** A reader of the topic, which must have been created before. */
    public Reader reader(From from) {
        return new Reader(this, from, false);
    }

    /** A reader of a topic that may be created later. */
    public Reader listener(From from) {
        return new Reader(this, from, true);
    }

    /**
     * The records from a position to the newest one. A record is valid until the next one is requested. The
     * caller must close the stream.
     */
    public Stream<TopicRecord> records(From from) {
        Reader reader = reader(from);
        return stream(new Records() {
            @Override
            Page more() {
                return reader.next(Duration.ZERO).orElse(null);
            }
        }).onClose(reader::close);
    }

    /** The keys with a prefix, in byte order, with their values. Valid as for {@link #records}. */
    public Stream<TopicRecord> scan(byte[] prefix) {
        return stream(new Records() {
            private byte[] after;

            @Override
            Page more() {
                Page page = scan(prefix, after, SCAN_KEYS, true).orElse(null);
                if (page != null) {
                    after = page.records().getLast().key();
                }
                return page;
            }
        });
    }

    /**
     * One page of at most {@code limit} keys with a prefix, in byte order. Starts after the key {@code after}
     * if it is not null. Without values, records have only key and offset. Empty if there are no more keys.
     */
    public Optional<Page> scan(byte[] prefix, byte[] after, long limit, boolean values) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment topic = Lib.slice(call, name);
            MemorySegment begin = Lib.slice(call, prefix);
            MemorySegment last = Lib.slice(call, after == null ? new byte[0] : after);
            MemorySegment out = call.allocate(JAVA_LONG);
            int flags = (values ? 2 : 0) | (after == null ? 0 : 1);
            long count = Weir.nonNegative("limit", limit);
            int result = store.check(call, (from, error) -> (int) Lib.SCAN.invokeExact(
                    from, topic, begin, last, count, flags, out, error));
            return result == Lib.DONE ? Optional.empty() : Optional.of(new Page(out.get(JAVA_LONG, 0)));
        }
    }

    /** Copies of the records from a position on, including new ones. The topic may be created later. */
    public Flow.Publisher<Stored> follow(From from) {
        return new RecordPublisher(this, from);
    }

    /** Joins a group. Creates it if it does not exist. */
    public Group group(String group, GroupMode mode) {
        return new Group(this, group, mode, new GroupOptions());
    }

    /** Joins a group with options. Creates it if it does not exist. */
    public Group group(String group, GroupMode mode, GroupOptions options) {
        return new Group(this, group, mode, options);
    }

    private static Stream<TopicRecord> stream(Records records) {
        int traits = Spliterator.ORDERED | Spliterator.NONNULL;
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(records, traits), false)
                .onClose(records::close);
    }

    /** Records of pages. Each page is closed after its last record. */
    private abstract static class Records implements Iterator<TopicRecord> {
        private Page page;
        private int next;

        /** The next page; null after the last one. */
        abstract Page more();

        @Override
        public boolean hasNext() {
            while (page == null || next >= page.size()) {
                close();
                page = more();
                next = 0;
                if (page == null) {
                    return false;
                }
            }
            return true;
        }

        @Override
        public TopicRecord next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return new TopicRecord(page, next++);
        }

        void close() {
            if (page != null) {
                page.close();
                page = null;
            }
        }
    }
}
