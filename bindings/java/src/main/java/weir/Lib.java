package weir;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * The functions of {@code weir.h}. A handle is a number that is passed as a pointer and never dereferenced.
 */
final class Lib {
    static final int READY = 2;
    static final int NEED = 3;
    static final int DONE = 4;
    static final int TIMEOUT = 5;
    static final int ABSENT = 6;
    static final int NO_SOURCE = -1;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup SYMBOLS = Library.symbols();

    /** {@code weir_slice}. */
    static final StructLayout SLICE = struct(ADDRESS.withName("ptr"), JAVA_LONG.withName("len"));

    /** Size of {@code weir_error}, and the offsets of its fields. */
    private static final long ERROR_BYTES = 264;
    private static final long ERROR_CODE = 4;
    private static final long ERROR_SOURCE = 8;
    private static final long ERROR_DETAIL = 12;
    private static final long ERROR_OFFSET = 16;
    private static final long ERROR_MESSAGE = 24;

    static final MethodHandle PAGE_DESCRIBE = call("weir_page_describe", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle PAGE_GET =
            call("weir_page_get", JAVA_LONG, JAVA_LONG, JAVA_LONG, SLICE, ADDRESS, ADDRESS);
    static final MethodHandle PAGE_VALUES = call("weir_page_values", JAVA_LONG, JAVA_LONG, JAVA_LONG,
            ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle PAGE_RELEASE = voidCall("weir_page_release");

    static final MethodHandle OPEN = call("weir_open", SLICE, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle CONNECT = call("weir_connect", SLICE, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle DESCRIBE = call("weir_describe", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle SYNC = call("weir_sync", JAVA_LONG, ADDRESS);
    static final MethodHandle WITHIN = call("weir_within", JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle WITH_CONSISTENCY =
            call("weir_with_consistency", JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS);
    static final MethodHandle CANCEL = call("weir_cancel", JAVA_LONG);
    static final MethodHandle CLOSE = call("weir_close", JAVA_LONG, ADDRESS);
    static final MethodHandle SUBMIT =
            call("weir_submit", JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle SEND = call("weir_send", JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle PENDING_RECEIVED = call("weir_pending_received", JAVA_LONG, JAVA_LONG, ADDRESS);
    static final MethodHandle PENDING_WAIT = call("weir_pending_wait", JAVA_LONG, JAVA_LONG, ADDRESS,
            JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle PENDING_FREE = voidCall("weir_pending_free");
    static final MethodHandle SESSION_OPEN = call("weir_session_open", JAVA_LONG, SLICE, ADDRESS, ADDRESS);
    static final MethodHandle SESSION_SUBMIT =
            call("weir_session_submit", JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle SESSION_SEND =
            call("weir_session_send", JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle SESSION_NEXT_NONCE =
            call("weir_session_next_nonce", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle SESSION_RESUME =
            call("weir_session_resume", JAVA_LONG, JAVA_LONG, ADDRESS);
    static final MethodHandle SESSION_CANCEL = call("weir_session_cancel", JAVA_LONG);
    static final MethodHandle SESSION_FREE = voidCall("weir_session_free");
    static final MethodHandle TOPIC_ENSURE =
            call("weir_topic_ensure", JAVA_LONG, SLICE, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle TOPIC_DESCRIBE =
            call("weir_topic_describe", JAVA_LONG, SLICE, ADDRESS, ADDRESS);
    static final MethodHandle TOPICS = call("weir_topics", JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS);
    static final MethodHandle GET = call("weir_get", JAVA_LONG, SLICE, SLICE, ADDRESS, ADDRESS);
    static final MethodHandle AT = call("weir_at", JAVA_LONG, SLICE, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle SCAN =
            call("weir_scan", JAVA_LONG, SLICE, SLICE, SLICE, JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS);
    static final MethodHandle POSITION = call("weir_position", SLICE, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle READER_OPEN =
            call("weir_reader_open", JAVA_LONG, SLICE, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle READER_NEXT =
            call("weir_reader_next", JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle READER_CANCEL = call("weir_reader_cancel", JAVA_LONG);
    static final MethodHandle READER_FREE = voidCall("weir_reader_free");
    static final MethodHandle GROUP_OPEN =
            call("weir_group_open", JAVA_LONG, SLICE, SLICE, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle GROUP_CLAIM =
            call("weir_group_claim", JAVA_LONG, JAVA_LONG, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle GROUP_SETTLE = call("weir_group_settle", JAVA_LONG, ADDRESS, JAVA_LONG,
            JAVA_INT, JAVA_LONG, SLICE, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle GROUP_STEP =
            call("weir_group_step", JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG, ADDRESS);
    static final MethodHandle GROUP_DESCRIBE = call("weir_group_describe", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle GROUP_CANCEL = call("weir_group_cancel", JAVA_LONG);
    static final MethodHandle GROUP_FREE = voidCall("weir_group_free");

    static final MethodHandle QUERY_OPEN = call("weir_query_open", ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_OPEN_TOPICS =
            call("weir_query_open_topics", JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_WAIT =
            call("weir_query_wait", JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_SOURCE_NAME =
            call("weir_query_source_name", JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_SOURCE =
            call("weir_query_source", JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_ENQUEUE_BUFFER = call("weir_query_enqueue_buffer", JAVA_LONG,
            JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS, SLICE, JAVA_INT, ADDRESS);
    static final MethodHandle QUERY_METAS = call("weir_query_metas", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle SHAPE = call("weir_shape", SLICE, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_FINISH = call("weir_query_finish", JAVA_LONG, JAVA_INT, ADDRESS);
    static final MethodHandle QUERY_ABANDON = call("weir_query_abandon", JAVA_LONG, SLICE, ADDRESS);
    static final MethodHandle QUERY_REPLACE =
            call("weir_query_replace", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_WATERMARK =
            call("weir_query_watermark", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS);
    static final MethodHandle QUERY_NEXT =
            call("weir_query_next", JAVA_LONG, JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_NEEDS = call("weir_query_needs", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_TOKEN = call("weir_query_token", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_EXPLAIN = call("weir_query_explain", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle QUERY_CANCEL = call("weir_query_cancel", JAVA_LONG);
    static final MethodHandle QUERY_FREE = voidCall("weir_query_free");
    static final MethodHandle BUFFER_NEW = call("weir_buffer_new", JAVA_LONG, ADDRESS, ADDRESS);
    private static final MethodHandle HANDLES_OPEN =
            handle("weir_handles_open", FunctionDescriptor.of(JAVA_LONG));
    private static final MethodHandle BUFFER_DATA = handle("weir_buffer_data",
            FunctionDescriptor.of(ADDRESS, JAVA_LONG, ADDRESS));
    static final MethodHandle BUFFER_FREE = voidCall("weir_buffer_free");

    private Lib() {}

    /** A call of the library that may fail. */
    @FunctionalInterface
    interface Call {
        int run(MemorySegment error) throws Throwable;
    }

    /**
     * Memory of a thread for the results of calls on pages. Each call reuses it, so the content is valid only
     * within the method that makes the call.
     */
    static final class CallScratch {
        private static final ThreadLocal<CallScratch> PER_THREAD = ThreadLocal.withInitial(CallScratch::new);

        /** {@code weir_error}. */
        final MemorySegment error;
        /** A handle. */
        final MemorySegment out;
        /** {@code weir_page_info}. */
        final MemorySegment info;

        private CallScratch() {
            Arena arena = Arena.ofAuto();
            error = arena.allocate(ERROR_BYTES, Long.BYTES);
            out = arena.allocate(JAVA_LONG);
            info = sized(arena, Page.INFO_BYTES);
        }

        static CallScratch ofThread() {
            return PER_THREAD.get();
        }
    }

    /** Makes a call. Returns its result, or throws its error. */
    static int check(Arena arena, Call call) {
        return check(arena.allocate(ERROR_BYTES, Long.BYTES), call);
    }

    /** Makes a call with the given memory for the error. */
    static int check(MemorySegment error, Call call) {
        int result = run(() -> call.run(error));
        if (result < 0) {
            throw failed(result, error);
        }
        return result;
    }

    /** Makes a call that has no argument for an error. Returns its result. */
    static int callWithoutError(MethodHandle handle, long value) {
        return run(() -> (int) handle.invokeExact(value));
    }

    /** Releases a handle. */
    static void release(MethodHandle handle, long value) {
        run(() -> {
            handle.invokeExact(value);
            return 1;
        });
    }

    /** The number of handles of this process that are not released. For tests. */
    static long handlesOpen() {
        try {
            return (long) HANDLES_OPEN.invokeExact();
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    /** The address of the memory of a buffer, as a segment. */
    static MemorySegment bufferData(long buffer) {
        try {
            return (MemorySegment) BUFFER_DATA.invokeExact(buffer, MemorySegment.NULL);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    private interface Plain {
        int run() throws Throwable;
    }

    private static int run(Plain call) {
        try {
            return call.run();
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    private static RuntimeException unexpected(Throwable thrown) {
        if (thrown instanceof RuntimeException runtimeException) {
            return runtimeException;
        }
        if (thrown instanceof Error fatal) {
            throw fatal;
        }
        return new IllegalStateException(thrown);
    }

    private static WeirException failed(int result, MemorySegment error) {
        ErrorCode code = ErrorCode.of(-result);
        if (error.get(JAVA_INT, ERROR_CODE) != result) {
            return new WeirException(code, code.sentence());
        }
        return new WeirException(code, error.getString(ERROR_MESSAGE),
                error.get(JAVA_INT, ERROR_SOURCE), error.get(JAVA_LONG, ERROR_OFFSET),
                error.get(JAVA_INT, ERROR_DETAIL));
    }

    // ---------------------------------------------------------------- memory

    /** A slice of bytes, which are copied into the arena. */
    static MemorySegment slice(Arena arena, byte[] bytes) {
        MemorySegment slice = arena.allocate(SLICE);
        putBytes(arena, slice, 0, bytes);
        return slice;
    }

    /** A slice of a text, which is copied into the arena. */
    static MemorySegment slice(Arena arena, String text) {
        return slice(arena, text.getBytes(StandardCharsets.UTF_8));
    }

    /** Writes a slice into a structure. */
    static void putBytes(Arena arena, MemorySegment into, long offset, byte[] bytes) {
        if (bytes == null || bytes.length == 0) {
            return;
        }
        into.set(ADDRESS, offset, arena.allocateFrom(JAVA_BYTE, bytes));
        into.set(JAVA_LONG, offset + Long.BYTES, bytes.length);
    }

    static void putText(Arena arena, MemorySegment into, long offset, String text) {
        if (text != null) {
            putBytes(arena, into, offset, text.getBytes(StandardCharsets.UTF_8));
        }
    }

    /** An array of slices; NULL if there is none. */
    static MemorySegment texts(Arena arena, List<String> texts) {
        if (texts.isEmpty()) {
            return MemorySegment.NULL;
        }
        MemorySegment array = arena.allocate(SLICE, texts.size());
        for (int at = 0; at < texts.size(); at++) {
            putText(arena, array, at * SLICE.byteSize(), texts.get(at));
        }
        return array;
    }

    /** An array of names with values; NULL if there is none. */
    static MemorySegment fields(Arena arena, List<Field> fields) {
        if (fields.isEmpty()) {
            return MemorySegment.NULL;
        }
        MemorySegment array = arena.allocate(SLICE, 2L * fields.size());
        for (int at = 0; at < fields.size(); at++) {
            long offset = 2 * at * SLICE.byteSize();
            putText(arena, array, offset, fields.get(at).name());
            putText(arena, array, offset + SLICE.byteSize(), fields.get(at).value());
        }
        return array;
    }

    /** A structure of {@code bytes} bytes, whose first field is its size. */
    static MemorySegment sized(Arena arena, long bytes) {
        MemorySegment segment = arena.allocate(bytes, Long.BYTES);
        segment.set(JAVA_INT, 0, (int) bytes);
        return segment;
    }

    // ---------------------------------------------------------------- linking

    private static StructLayout struct(MemoryLayout... fields) {
        return MemoryLayout.structLayout(fields);
    }

    private static MethodHandle call(String name, MemoryLayout... arguments) {
        return handle(name, FunctionDescriptor.of(JAVA_INT, arguments));
    }

    private static MethodHandle voidCall(String name) {
        return handle(name, FunctionDescriptor.ofVoid(JAVA_LONG));
    }

    @SuppressWarnings("restricted")
    private static MethodHandle handle(String name, FunctionDescriptor shape) {
        MemorySegment symbol = SYMBOLS.find(name).orElseThrow(() -> new WeirException(
                ErrorCode.UNSUPPORTED, "the library has no function `" + name + "`: it is older than this package"));
        return LINKER.downcallHandle(symbol, shape);
    }
}
