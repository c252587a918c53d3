package weir;

import java.util.OptionalInt;
import java.util.OptionalLong;

/**
 * An error of a call. A rejecting verdict is not an error but a value. The message begins with the name of
 * the code, as in "CLOSED: ".
 */
public final class WeirException extends RuntimeException {
    private static final long serialVersionUID = 1;
    static final long NO_OFFSET = -1;
    private static final int NO_SOURCE = -1;

    /** The error. */
    private final ErrorCode code;
    /** The number of the source, or {@link #NO_SOURCE}. */
    private final int source;
    /** The offending byte, or {@link #NO_OFFSET}. */
    private final long offset;
    /** A number whose meaning depends on the error, or 0. */
    private final int detail;

    WeirException(ErrorCode code, String message, int source, long offset, int detail) {
        super(code + ": " + message);
        this.code = code;
        this.source = source;
        this.offset = offset;
        this.detail = detail;
    }

    WeirException(ErrorCode code, String message) {
        this(code, message, NO_SOURCE, NO_OFFSET, 0);
    }

    /** The error. */
    public ErrorCode code() {
        return code;
    }

    /** The number of the source in the query, if one was involved. */
    public OptionalInt source() {
        return source == NO_SOURCE ? OptionalInt.empty() : OptionalInt.of(source);
    }

    /** The first offending byte in the page or in the text of the query. */
    public OptionalLong offset() {
        return offset == NO_OFFSET ? OptionalLong.empty() : OptionalLong.of(offset);
    }

    /** A number whose meaning depends on the error, or 0. */
    public int detail() {
        return detail;
    }
}
