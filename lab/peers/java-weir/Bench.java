import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import weir.Buffer;
import weir.Budgets;
import weir.Item;
import weir.Page;
import weir.Query;
import weir.QueryOptions;
import weir.Source;
import weir.SourceOptions;
import weir.Step;

/**
 * A contender of the lab: the Java package on pages of JSON, compared with other ways in Java.
 *
 * <pre>
 *   enqueue   passes the ownership of a page in memory of the library to the query, which scans the page
 *   copied    the query copies and scans a page in memory of Java
 *   next      the query returns the items of a scanned page, 256 in each call whatever their size, and
 *             the memory segment of each item is read. The time of the last call, which releases the
 *             page, is reported separately, as `done`
 *   floor     the lower bound of next: direct calls of weir.h, without the package
 *   jackson   the streaming parser reads the page and the key of each item
 * </pre>
 *
 * Implements the line protocol of docs/guide/lab.md. The creation of the query is not timed. CPU
 * time is that of the process, including the garbage collector.
 */
final class Bench {
    private static final int BATCH = 256;

    /** A measured pass. Starts and stops the clock, and passes every key to `each` if it is not null. */
    private interface Way {
        long pass(Input input, Clock clock, Consumer<byte[]> each) throws Throwable;
    }

    private static final Map<String, Way> WAYS = Map.of(
            "enqueue", Bench::enqueue,
            "copied", Bench::copied,
            "next", Bench::next,
            "floor", Bench::floor,
            "jackson", Bench::jackson);

    private record Input(byte[] page, int items) {}

    public static void main(String[] words) throws Throwable {
        String versions = "java=" + Runtime.version() + "\tjackson=" + new JsonFactory().version()
                + "\tlibrary=" + Bare.build();
        if (words.length == 1 && words[0].equals("--version")) {
            System.out.println("java-weir, " + versions.replace("\t", ", "));
            return;
        }
        Way way = words.length == 1 ? WAYS.get(words[0]) : null;
        if (way == null) {
            System.err.println("usage: Bench " + String.join("|", WAYS.keySet()));
            System.exit(2);
        }
        boolean fine = Arrays.asList(Bare.build().split("; ")).contains("profile=release");
        System.out.println("hello\t1\tprofile=" + (fine ? "optimised" : "debug") + "\t" + versions);
        Map<String, Input> inputs = new HashMap<>();
        // The library retains memory for pages as long as a query exists.
        try (Query idle = query()) {
            idle.source(new SourceOptions());
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null && !line.equals("quit"); line = lines.readLine()) {
                String answer;
                try {
                    answer = serve(way, line.split("\t"), inputs);
                } catch (Exception | AssertionError failed) {
                    answer = "error\t" + failed.toString().replaceAll("\\s+", " ");
                }
                System.out.println(answer);
            }
        }
    }

    private static String serve(Way way, String[] words, Map<String, Input> inputs) throws Throwable {
        switch (words[0]) {
            case "load" -> {
                Map<String, String> fields = new HashMap<>();
                for (String word : Arrays.asList(words).subList(2, words.length)) {
                    String[] sides = word.split("=", 2);
                    fields.put(sides[0], sides[1]);
                }
                inputs.put(words[1], new Input(page(fields), Integer.parseInt(fields.get("objects"))));
                return "ok";
            }
            case "check" -> {
                long[] hash = {0xcbf29ce484222325L};
                long touch = way.pass(inputs.get(words[1]), new Clock(), key -> {
                    for (byte at : key) {
                        hash[0] = (hash[0] ^ (at & 0xff)) * 0x100000001b3L;
                    }
                    hash[0] = (hash[0] ^ ',') * 0x100000001b3L;
                });
                return String.format("answer\t%016x\t%x\t0\t0", hash[0], touch);
            }
            case "run" -> {
                Input input = inputs.get(words[1]);
                if (warmed.add(words[1])) {
                    warm(way, input);
                }
                // The process was just scheduled, so its first pass runs with cold caches.
                way.pass(input, new Clock(), null);
                Clock clock = new Clock();
                long touch = 0;
                for (int at = Integer.parseInt(words[2]); at > 0; at--) {
                    touch += way.pass(input, clock, null);
                }
                String done = clock.done == 0 ? "" : "\tdone=" + clock.done;
                return String.format("time\t%d\t%d\t%x%s", clock.wall, clock.cpu, touch, done);
            }
            default -> throw new IllegalArgumentException("no request " + words[0]);
        }
    }

    /** Inputs that this process has warmed up, so that their code is compiled. */
    private static final Set<String> warmed = new HashSet<>();

    /** Warms up an input: first with small items, because few large items would not start the compiler. */
    private static void warm(Way way, Input input) throws Throwable {
        Input small = new Input(page(Map.of("objects", "5000", "depth", "1", "width", "6")), 5000);
        for (Input each : List.of(small, input)) {
            long until = System.nanoTime() + 1_000_000_000L;
            for (int pass = 0; pass < 2 || (pass < 1000 && System.nanoTime() < until); pass++) {
                way.pass(each, new Clock(), null);
            }
        }
    }

    // ---------------------------------------------------------------- pages

    /** Nested arrays; depth 6 and width 10 result in 17 MB. */
    private static String deep(int depth, int width) {
        if (depth == 0) {
            return "\"value\"";
        }
        String one = "{\"key\":" + deep(depth - 1, width) + "}";
        return "[" + String.join(",", java.util.Collections.nCopies(width, one)) + "]";
    }

    /** Creates the page. All contenders create equal pages from equal parameters. */
    private static byte[] page(Map<String, String> fields) {
        String payload = deep(Integer.parseInt(fields.get("depth")), Integer.parseInt(fields.get("width")));
        String title = switch (fields.getOrDefault("title", "")) {
            case "escapes" -> "\\\"q\\\\ ";
            case "non-ascii" -> "é€😀 ";
            default -> "";
        };
        boolean last = fields.getOrDefault("key_last", "").equals("true");
        StringBuilder out = new StringBuilder("[");
        for (int item = 0; item < Integer.parseInt(fields.get("objects")); item++) {
            String head = "{\"id\":\"" + item + "\",\"title\":\"" + title + "Partition 1 / Item " + item
                    + " / Order " + item + "\",\"huge_data\":";
            out.append(item > 0 ? "," : "");
            if (last) {
                out.append("{\"payload\":").append(head).append(payload);
                out.append("},\"order\":").append(item).append('}');
            } else {
                out.append("{\"order\":").append(item).append(",\"payload\":").append(head);
                out.append(payload).append("}}");
            }
        }
        return out.append(']').toString().getBytes(StandardCharsets.UTF_8);
    }

    // ---------------------------------------------------------------- the package

    private static Query query() {
        return new Query(new QueryOptions().order("$.order").budgets(new Budgets().bufferBytes(1L << 30)));
    }

    private static long enqueue(Input input, Clock clock, Consumer<byte[]> each) {
        try (Query query = query(); Buffer buffer = new Buffer(input.page.length)) {
            Source source = query.source(new SourceOptions().sorted());
            MemorySegment.copy(MemorySegment.ofArray(input.page), 0, buffer.segment(), 0, input.page.length);
            clock.start();
            source.enqueue(buffer, input.page.length, null);
            clock.stop();
            drain(query, each);
        }
        return input.page.length;
    }

    private static long copied(Input input, Clock clock, Consumer<byte[]> each) {
        try (Query query = query()) {
            Source source = query.source(new SourceOptions().sorted());
            clock.start();
            source.enqueue(input.page, null);
            clock.stop();
            drain(query, each);
        }
        return input.page.length;
    }

    private static long next(Input input, Clock clock, Consumer<byte[]> each) {
        try (Query query = scanned(input)) {
            clock.start();
            long sum = readItems(query, input.items);
            clock.stop();
            long begun = System.nanoTime();
            Step last = query.next();
            clock.done += System.nanoTime() - begun;
            if (!(last instanceof Step.Done)) {
                throw new AssertionError("more items than there are");
            }
            return sum;
        }
    }

    private static Query scanned(Input input) {
        Query query = query();
        query.source(new SourceOptions().sorted()).enqueue(input.page, null);
        return query;
    }

    /** Reads `items` items. Returns the sum of their lengths. */
    private static long readItems(Query query, int items) {
        long sum = 0;
        for (int left = items; left > 0; ) {
            if (!(query.next(BATCH, Long.MAX_VALUE) instanceof Step.Ready(Page page))) {
                throw new AssertionError("fewer items than there are");
            }
            try (page) {
                left -= page.size();
                for (Item item : page) {
                    sum += item.segment().byteSize();
                }
            }
        }
        return sum;
    }

    /** Passes the key of each item to `each` if it is not null. */
    private static void drain(Query query, Consumer<byte[]> each) {
        if (each == null) {
            return;
        }
        for (Page page : query.pages()) {
            try (page) {
                page.get("$.order").forEach(key -> each.accept(key.toArray(java.lang.foreign.ValueLayout.JAVA_BYTE)));
            }
        }
    }

    // ---------------------------------------------------------------- other ways

    private static long floor(Input input, Clock clock, Consumer<byte[]> each) throws Throwable {
        try (Arena arena = Arena.ofConfined()) {
            long query = Bare.scanned(arena, input.page);
            MemorySegment out = arena.allocate(JAVA_LONG);
            MemorySegment info = arena.allocate(96, Long.BYTES);
            info.set(JAVA_INT, 0, 96);
            long sum = 0;
            clock.start();
            for (long left = input.items; left > 0; ) {
                Bare.fine((int) Bare.NEXT.invokeExact(query, BATCH, Long.MAX_VALUE, out, MemorySegment.NULL));
                long page = out.get(JAVA_LONG, 0);
                Bare.fine((int) Bare.DESCRIBE.invokeExact(page, info, MemorySegment.NULL));
                long count = info.get(JAVA_LONG, 16);
                MemorySegment items = info.get(ADDRESS, 8).reinterpret(count * 40);
                for (long at = 0; at < count; at++) {
                    sum += items.get(JAVA_LONG, at * 40 + 8);
                }
                Bare.PAGE_RELEASE.invokeExact(page);
                left -= count;
            }
            clock.stop();
            Bare.QUERY_FREE.invokeExact(query);
            return sum;
        }
    }

    private static long jackson(Input input, Clock clock, Consumer<byte[]> each) throws IOException {
        long[] keys = new long[input.items];
        int count = 0;
        clock.start();
        try (JsonParser parser = JSON.createParser(input.page)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.START_OBJECT) {
                while (parser.nextToken() == JsonToken.FIELD_NAME) {
                    boolean wanted = parser.currentName().equals("order");
                    parser.nextToken();
                    if (wanted) {
                        keys[count++] = parser.getLongValue();
                    } else {
                        parser.skipChildren();
                    }
                }
            }
        }
        clock.stop();
        for (int at = 0; each != null && at < count; at++) {
            each.accept(Long.toString(keys[at]).getBytes(StandardCharsets.UTF_8));
        }
        return input.page.length;
    }

    private static final JsonFactory JSON = new JsonFactory();

    /** The functions of weir.h that the floor calls. */
    private static final class Bare {
        private static final Linker LINKER = Linker.nativeLinker();
        private static final SymbolLookup SYMBOLS =
                SymbolLookup.libraryLookup(Path.of(System.getProperty("weir.library")), Arena.global());
        private static final StructLayout SLICE = MemoryLayout.structLayout(ADDRESS, JAVA_LONG);

        static final MethodHandle NEXT = call("weir_query_next", JAVA_LONG, JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS);
        static final MethodHandle DESCRIBE = call("weir_page_describe", JAVA_LONG, ADDRESS, ADDRESS);
        static final MethodHandle PAGE_RELEASE = give("weir_page_release");
        static final MethodHandle QUERY_FREE = give("weir_query_free");
        private static final MethodHandle OPEN = call("weir_query_open", ADDRESS, ADDRESS, ADDRESS);
        private static final MethodHandle SOURCE = call("weir_query_source", JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
        private static final MethodHandle ENQUEUE = call("weir_query_enqueue_copy", JAVA_LONG, JAVA_INT, SLICE,
                ADDRESS, SLICE, JAVA_INT, ADDRESS);

        static String build() throws Throwable {
            MethodHandle info = LINKER.downcallHandle(
                    SYMBOLS.find("weir_build_info").orElseThrow(), FunctionDescriptor.of(ADDRESS));
            MemorySegment text = (MemorySegment) info.invokeExact();
            return text.reinterpret(4096).getString(0);
        }

        /** Creates a query that is ordered by the key and has the page. */
        static long scanned(Arena arena, byte[] page) throws Throwable {
            MemorySegment options = arena.allocate(208, Long.BYTES);
            options.set(JAVA_INT, 0, 208);
            options.set(ADDRESS, 24, arena.allocateFrom("$.order"));
            options.set(JAVA_LONG, 32, 7);
            options.set(JAVA_LONG, 144, 1L << 30);
            MemorySegment out = arena.allocate(JAVA_LONG);
            fine((int) OPEN.invokeExact(options, out, MemorySegment.NULL));
            long query = out.get(JAVA_LONG, 0);
            MemorySegment source = arena.allocate(120, Long.BYTES);
            source.set(JAVA_INT, 0, 120);
            source.set(JAVA_INT, 4, 4);
            fine((int) SOURCE.invokeExact(query, source, out, MemorySegment.NULL));
            MemorySegment given = arena.allocate(SLICE);
            given.set(ADDRESS, 0, arena.allocateFrom(java.lang.foreign.ValueLayout.JAVA_BYTE, page));
            given.set(JAVA_LONG, 8, page.length);
            fine((int) ENQUEUE.invokeExact(query, out.get(JAVA_INT, 0), given, MemorySegment.NULL,
                    arena.allocate(SLICE), 0, MemorySegment.NULL));
            return query;
        }

        static void fine(int result) {
            if (result <= 0) {
                throw new AssertionError("weir.h answered " + result);
            }
        }

        private static MethodHandle call(String name, MemoryLayout... arguments) {
            return LINKER.downcallHandle(SYMBOLS.find(name).orElseThrow(), FunctionDescriptor.of(JAVA_INT, arguments));
        }

        private static MethodHandle give(String name) {
            return LINKER.downcallHandle(SYMBOLS.find(name).orElseThrow(), FunctionDescriptor.ofVoid(JAVA_LONG));
        }
    }

    /** Adds up wall time and CPU time of the process, in nanoseconds. */
    private static final class Clock {
        private static final int PROCESS = 2;
        private static final MethodHandle GETTIME = Linker.nativeLinker().downcallHandle(
                Linker.nativeLinker().defaultLookup().find("clock_gettime").orElseThrow(),
                FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS));
        private static final MemorySegment TIME = Arena.global().allocate(16, 8);

        private long wall;
        private long cpu;
        private long done;
        private long wallBegun;
        private long cpuBegun;

        void start() {
            cpuBegun = cpu();
            wallBegun = System.nanoTime();
        }

        void stop() {
            wall += System.nanoTime() - wallBegun;
            cpu += cpu() - cpuBegun;
        }

        private static long cpu() {
            try {
                int result = (int) GETTIME.invokeExact(PROCESS, TIME);
                return result == 0 ? TIME.get(JAVA_LONG, 0) * 1_000_000_000L + TIME.get(JAVA_LONG, 8) : 0;
            } catch (Throwable failed) {
                throw new AssertionError(failed);
            }
        }
    }
}
