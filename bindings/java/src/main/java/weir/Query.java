package weir;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A run of a query over pages that its user fetches: partitions of another database, files, any JSON that
 * arrives in pages. It does no input or output. One thread at a time may use it.
 */
public final class Query implements AutoCloseable {
    private static final long OPTIONS_BYTES = 208;
    private static final long SOURCE_BYTES = 120;

    private static final int DISTINCT = 4;
    private static final int LIMIT = 1;
    private static final int TOP = 2;
    private static final int UTF16 = 8;
    private static final int RANK_COMPLEX = 16;
    private static final int DROP_MISSING = 32;
    private static final int PAGES_AHEAD = 64;

    /** Longest wait for new records in one call of the library. */
    private static final Duration WAIT = Duration.ofMinutes(1);

    private final Handle handle;
    private final Fetch fetch;
    private final boolean topics;
    /** Number of calls that advanced a source. */
    private long advanced;

    /** Compiles a query. */
    public Query(QueryOptions options) {
        Library.requireLoaded();
        fetch = options.fetch;
        topics = false;
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = fill(call, options);
            MemorySegment out = call.allocate(JAVA_LONG);
            Lib.check(call, error -> (int) Lib.QUERY_OPEN.invokeExact(argument, out, error));
            handle = new Handle(this, out.get(JAVA_LONG, 0), Lib.QUERY_FREE);
        }
    }

    /** Creates a query over topics of a store. */
    Query(Weir store, TopicsOptions topics, QueryOptions options) {
        fetch = null;
        this.topics = true;
        try (Arena call = Arena.ofConfined()) {
            MemorySegment topicsArgument = topics.fill(call);
            MemorySegment argument = fill(call, options);
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = store.open(this, call,
                    (at, error) -> (int) Lib.QUERY_OPEN_TOPICS.invokeExact(at, topicsArgument, argument, out, error),
                    out, Lib.QUERY_FREE);
        }
    }

    private static MemorySegment fill(Arena call, QueryOptions from) {
        MemorySegment into = Lib.sized(call, OPTIONS_BYTES);
        Budgets budgets = from.budgets;
        into.set(JAVA_INT, 4, flag(from.distinct, DISTINCT)
                | flag(from.limit != null, LIMIT)
                | flag(from.top != null, TOP)
                | flag(from.strings == StringOrder.UTF16, UTF16)
                | flag(from.complex == ComplexKeys.RANK, RANK_COMPLEX)
                | flag(from.missing == MissingKeys.DROP, DROP_MISSING)
                | flag(budgets.pagesAhead != 0, PAGES_AHEAD));
        Lib.putText(call, into, 8, from.where);
        Lib.putText(call, into, 24, from.order);
        Lib.putText(call, into, 40, from.select);
        Lib.putText(call, into, 56, from.group);
        into.set(JAVA_LONG, 72, Weir.nonNegative("offset", from.offset));
        into.set(JAVA_LONG, 80, from.limit == null ? 0 : Weir.nonNegative("limit", from.limit));
        into.set(JAVA_LONG, 88, from.top == null ? 0 : Weir.nonNegative("top", from.top));
        into.set(ADDRESS, 96, Lib.fields(call, from.params));
        into.set(JAVA_LONG, 104, from.params.size());
        Lib.putBytes(call, into, 112, from.token);
        into.set(JAVA_INT, 128, from.mode.ordinal());
        into.set(JAVA_INT, 132, from.level.ordinal());
        into.set(JAVA_INT, 136, from.badItems.ordinal());
        into.set(JAVA_INT, 140, Math.max(budgets.pagesAhead, 0));
        into.set(JAVA_LONG, 144, Weir.nonNegative("bufferBytes", budgets.bufferBytes));
        into.set(JAVA_LONG, 152, Weir.nonNegative("sortBytes", budgets.sortBytes));
        into.set(JAVA_LONG, 160, Weir.nonNegative("groups", budgets.groups));
        into.set(JAVA_LONG, 168, Weir.nonNegative("distinctValues", budgets.distinctValues));
        into.set(JAVA_LONG, 176, Weir.nonNegative("pageBytes", budgets.pageBytes));
        into.set(JAVA_LONG, 184, Weir.nonNegative("itemBytes", budgets.itemBytes));
        into.set(JAVA_LONG, 192, Weir.nonNegative("pageHint", budgets.pageHint));
        into.set(JAVA_INT, 200, (int) Math.min(Weir.nonNegative("sources", budgets.sources), Integer.MAX_VALUE));
        into.set(JAVA_INT, 204, (int) Weir.nonNegative("depth", budgets.depth));
        return into;
    }

    private static int flag(boolean set, int bit) {
        return set ? bit : 0;
    }

    private static void fill(Arena call, MemorySegment into, SourceOptions from) {
        into.set(JAVA_INT, 0, (int) SOURCE_BYTES);
        into.set(JAVA_INT, 4, flag(from.ordinal != null, 1)
                | flag(from.first != null, 2)
                | flag(from.sorted, 4)
                | flag(from.trustOrder, 8)
                | flag(from.unstable, 16)
                | flag(from.partial, 32)
                | flag(!from.bound.isEmpty(), 64));
        Lib.putText(call, into, 8, from.name);
        if (!from.shape.isEmpty()) {
            MemorySegment text = Lib.slice(call, from.shape);
            Lib.check(call, error -> (int) Lib.SHAPE.invokeExact(
                    text, into.asSlice(24, 4), into.asSlice(32, 16), error));
        }
        into.set(JAVA_INT, 28, from.level.ordinal());
        into.set(JAVA_LONG, 48, from.ordinal == null ? 0 : Weir.nonNegative("ordinal", from.ordinal));
        Lib.putBytes(call, into, 56, from.first);
        Lib.putText(call, into, 72, from.tie);
        into.set(ADDRESS, 88, Lib.fields(call, from.meta));
        into.set(JAVA_LONG, 96, from.meta.size());
        into.set(ADDRESS, 104, Lib.texts(call, from.bound));
        into.set(JAVA_LONG, 112, from.bound.size());
    }

    /** Adds a source. */
    public Source source(SourceOptions options) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = call.allocate(SOURCE_BYTES, Long.BYTES);
            fill(call, argument, options);
            MemorySegment out = call.allocate(JAVA_INT);
            long query = handle.get();
            Lib.check(call, error -> (int) Lib.QUERY_SOURCE.invokeExact(query, argument, out, error));
            return new Source(this, out.get(JAVA_INT, 0));
        }
    }

    /** The source with the given number. */
    public Source source(int number) {
        return new Source(this, number);
    }

    /** Names of the properties of items of the shape {@code framed}, in this order. */
    private List<String> properties() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long query = handle.get();
            int result = Lib.check(call, error -> (int) Lib.QUERY_METAS.invokeExact(query, out, error));
            List<String> names = new ArrayList<>();
            if (result == Lib.ABSENT) {
                return names;
            }
            try (Page page = new Page(out.get(JAVA_LONG, 0))) {
                page.forEach(item -> names.add(item.text()));
            }
            return names;
        }
    }

    void enqueue(int source, Buffer buffer, long length, Frames frames, byte[] next) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment framesArgument = frames == null ? MemorySegment.NULL : frames.toNative(call, properties());
            MemorySegment name = Lib.slice(call, next == null ? new byte[0] : next);
            long query = handle.get();
            long argument = buffer.handle();
            int has = next == null ? 0 : 1;
            Lib.check(call, error -> (int) Lib.QUERY_ENQUEUE_BUFFER.invokeExact(
                    query, source, argument, length, framesArgument, name, has, error));
            buffer.markTransferred();
            advanced++;
        }
    }

    void finish(int source) {
        try (Arena call = Arena.ofConfined()) {
            long query = handle.get();
            Lib.check(call, error -> (int) Lib.QUERY_FINISH.invokeExact(query, source, error));
            advanced++;
        }
    }

    List<Source> replace(int source, List<SourceOptions> parts) {
        try (Arena call = Arena.ofConfined()) {
            int count = parts.size();
            MemorySegment argument = call.allocate(SOURCE_BYTES * Math.max(count, 1), Long.BYTES);
            for (int at = 0; at < count; at++) {
                fill(call, argument.asSlice(at * SOURCE_BYTES, SOURCE_BYTES), parts.get(at));
            }
            MemorySegment out = call.allocate(JAVA_INT, Math.max(count, 1));
            long query = handle.get();
            Lib.check(call, error -> (int) Lib.QUERY_REPLACE.invokeExact(
                    query, source, argument, (long) count, out, error));
            advanced++;
            List<Source> sources = new ArrayList<>(count);
            for (int at = 0; at < count; at++) {
                sources.add(new Source(this, out.getAtIndex(JAVA_INT, at)));
            }
            return sources;
        }
    }

    void watermark(int source, List<String> keys) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Lib.texts(call, keys);
            long query = handle.get();
            long count = keys.size();
            Lib.check(call, error -> (int) Lib.QUERY_WATERMARK.invokeExact(
                    query, source, argument, count, error));
            advanced++;
        }
    }

    /** Returns results if there are any, at most 256 or 1 MiB. Otherwise reports that pages are needed, or the end. */
    public Step next() {
        return next(0, 0);
    }

    /** Like {@link #next()}, with other limits; 0 is the default of each. An error is final. */
    public Step next(int items, long bytes) {
        Lib.CallScratch scratch = Lib.CallScratch.ofThread();
        MemorySegment out = scratch.out;
        long query = handle.get();
        Weir.nonNegative("items", items);
        Weir.nonNegative("bytes", bytes);
        try {
            return step(out, Lib.check(scratch.error, error -> (int) Lib.QUERY_NEXT.invokeExact(
                    query, items, bytes, out, error)));
        } finally {
            handle.keepOwnerReachable();
        }
    }

    /** For a query over topics: like {@link #next()}, but waits up to {@code wait} for new records. */
    public Step next(Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long query = handle.get();
            return step(out, Wait.inSlices(wait, time -> Lib.check(call, error -> (int) Lib.QUERY_WAIT.invokeExact(
                    query, time, 0, 0L, out, error))));
        } finally {
            handle.keepOwnerReachable();
        }
    }

    private static Step step(MemorySegment out, int result) {
        long page = out.get(JAVA_LONG, 0);
        return switch (result) {
            case Lib.DONE -> new Step.Done();
            case Lib.TIMEOUT -> new Step.Needing();
            case Lib.NEED -> {
                // The caller requests the needs again if it wants them.
                Lib.release(Lib.PAGE_RELEASE, page);
                yield new Step.Needing();
            }
            default -> new Step.Ready(new Page(page));
        };
    }

    /** The pages that the query requests now, required ones first. */
    public List<Need> needs() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long query = handle.get();
            Lib.check(call, error -> (int) Lib.QUERY_NEEDS.invokeExact(query, out, error));
            if (out.get(JAVA_LONG, 0) == 0) {
                return List.of();
            }
            List<Need> needs = new ArrayList<>();
            try (Page page = new Page(out.get(JAVA_LONG, 0))) {
                for (Item item : page) {
                    byte[] name = (item.flags() & Item.CONTINUATION) == 0 ? null : item.bytes();
                    boolean required = (item.flags() & Item.REQUIRED) != 0;
                    needs.add(new Need(source(item.source()), name, required, page.hint()));
                }
            }
            return needs;
        } finally {
            handle.keepOwnerReachable();
        }
    }

    /**
     * Declares that a source of the query that returned {@link QueryOptions#token} no longer exists, so its
     * remaining rows never arrive. Without this call, and without the source, {@link #next()} fails with
     * {@link ErrorCode#SOURCES_OWED}, which is not final.
     */
    public void abandon(String name) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Lib.slice(call, name);
            long query = handle.get();
            Lib.check(call, error -> (int) Lib.QUERY_ABANDON.invokeExact(query, argument, error));
        } finally {
            handle.keepOwnerReachable();
        }
    }

    /** The value of {@link QueryOptions#token} with which a query continues after the last returned page. */
    public byte[] token() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long query = handle.get();
            Lib.check(call, error -> (int) Lib.QUERY_TOKEN.invokeExact(query, out, error));
            try (Page page = new Page(out.get(JAVA_LONG, 0))) {
                return page.get(0).bytes();
            }
        } finally {
            handle.keepOwnerReachable();
        }
    }

    /** A description of the execution, for people. */
    public String explain() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long query = handle.get();
            Lib.check(call, error -> (int) Lib.QUERY_EXPLAIN.invokeExact(query, out, error));
            try (Page page = new Page(out.get(JAVA_LONG, 0))) {
                return page.get(0).text();
            }
        } finally {
            handle.keepOwnerReachable();
        }
    }

    /** The name of a source, which is the name of the topic in a query over topics; empty if there is no such source. */
    public Optional<String> sourceName(int source) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long query = handle.get();
            int result = Lib.check(call, error -> (int) Lib.QUERY_SOURCE_NAME.invokeExact(
                    query, source, out, error));
            if (result == Lib.ABSENT) {
                return Optional.empty();
            }
            try (Page page = new Page(out.get(JAVA_LONG, 0))) {
                return Optional.of(page.get(0).text());
            }
        } finally {
            handle.keepOwnerReachable();
        }
    }

    /** Ends the query: a running call of {@link #next} and each further call fail. Any thread may call it. */
    public void cancel() {
        Lib.callWithoutError(Lib.QUERY_CANCEL, handle.get());
    }

    /**
     * Pages of results; the caller must close each page. When pages are needed, the query calls
     * {@link QueryOptions#fetch}. Without a fetch, or if the fetch enqueues nothing, the iteration fails with
     * {@link ErrorCode#BAD_OPTION}. The next call of this method then resumes.
     */
    public Iterable<Page> pages() {
        return () -> new Iterator<>() {
            private Page ready;
            private boolean ended;

            @Override
            public boolean hasNext() {
                if (ready == null && !ended) {
                    ready = page();
                    ended = ready == null;
                }
                return ready != null;
            }

            @Override
            public Page next() {
                if (!hasNext()) {
                    throw new NoSuchElementException();
                }
                Page page = ready;
                ready = null;
                return page;
            }
        };
    }

    /**
     * The items of {@link #pages}. An item is valid until the next one is requested. Its page is closed after
     * its last item, or with the stream.
     */
    public Stream<Item> items() {
        Iterator<Page> pages = pages().iterator();
        Items items = new Items(pages);
        int traits = Spliterator.ORDERED | Spliterator.NONNULL;
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(items, traits), false)
                .onClose(items::close);
    }

    /** Items of pages. Each page is closed after its last item. */
    private static final class Items implements Iterator<Item> {
        private final Iterator<Page> pages;
        private Page page;
        private int next;

        Items(Iterator<Page> pages) {
            this.pages = pages;
        }

        @Override
        public boolean hasNext() {
            while (page == null || next >= page.size()) {
                close();
                if (!pages.hasNext()) {
                    return false;
                }
                page = pages.next();
                next = 0;
            }
            return true;
        }

        @Override
        public Item next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return page.get(next++);
        }

        void close() {
            if (page != null) {
                page.close();
                page = null;
            }
        }
    }

    private Page page() {
        while (true) {
            switch (topics ? next(WAIT) : next()) {
                case Step.Ready(Page page) -> {
                    return page;
                }
                case Step.Done() -> {
                    return null;
                }
                case Step.Needing() -> {
                    if (topics) {
                        continue;
                    }
                    List<Need> needs = needs();
                    if (fetch == null) {
                        throw missingPageError(needs, "a page of source %s is needed; give `fetch`");
                    }
                    long before = advanced;
                    try {
                        fetch.fetch(needs);
                    } catch (RuntimeException failed) {
                        throw failed;
                    } catch (Exception failed) {
                        if (failed instanceof InterruptedException) {
                            // The loop over results also sees that the thread was interrupted.
                            Thread.currentThread().interrupt();
                        }
                        throw new IllegalStateException("pages could not be fetched", failed);
                    }
                    if (advanced == before) {
                        throw missingPageError(needs, "`fetch` enqueued nothing, and a page of source %s is needed");
                    }
                }
            }
        }
    }

    /** The error for a required page that nobody will enqueue. */
    private WeirException missingPageError(List<Need> needs, String format) {
        int number = needs.getFirst().source().number();
        String name = sourceName(number).filter(text -> !text.isEmpty()).orElse("number " + number);
        return new WeirException(ErrorCode.BAD_OPTION, format.formatted(name), number, WeirException.NO_OFFSET, 0);
    }

    /** Closes the query. Its result pages stay valid. */
    @Override
    public void close() {
        handle.close();
    }
}
