// Made by `cargo xtask gen` from vectors/errors.toml; do not edit.
package weir;

/** An error by its number, which is equal in every language and every protocol. */
public enum ErrorCode {
    /** The topic to create already exists. */
    TOPIC_EXISTS(101, Fault.CALLER, Retry.NO,
            "The topic to create already exists.",
            "Use the topic as it is, or destroy it first."),
    /** The topic to change or destroy does not exist. */
    TOPIC_ABSENT(102, Fault.CALLER, Retry.NO,
            "The topic to change or destroy does not exist.",
            "Check the name with `weir topic ls`."),
    /** The program of the topic rejected the intention. */
    REJECTED(103, Fault.CALLER, Retry.NO,
            "The program of the topic rejected the intention.",
            "Read the code and text the program gave, and change the intention."),
    /** The topic does not have the state that the intention expected. */
    CONFLICT(104, Fault.CALLER, Retry.AFTER,
            "The topic does not have the state that the intention expected.",
            "Read the actual offset, decide again, and send a new intention."),
    /** A quota is used up: keys or groups of the topic, or memory of the state of programs. */
    QUOTA(105, Fault.CALLER, Retry.AFTER,
            "A quota is used up: keys or groups of the topic, or memory of the state of programs.",
            "Delete keys, groups or topics with programs, or raise the limit of the topic."),
    /** Another operation of the same transaction failed, so none was executed. */
    TXN_ABORTED(106, Fault.CALLER, Retry.NO,
            "Another operation of the same transaction failed, so none was executed.",
            "Check the operation whose index and reason are named."),
    /** The group to create already exists. */
    GROUP_EXISTS(107, Fault.CALLER, Retry.NO,
            "The group to create already exists.",
            "Use the group as it is, or delete it first."),
    /** The topic has no group of this name. */
    GROUP_ABSENT(108, Fault.CALLER, Retry.NO,
            "The topic has no group of this name.",
            "Check the name with `weir group ls`, or create the group."),
    /** Another consumer owns the record or the group now. */
    NOT_OWNER(109, Fault.CALLER, Retry.NO,
            "Another consumer owns the record or the group now.",
            "Discard the claimed records, and claim again."),
    /** The mode of the group does not allow this operation. */
    GROUP_MODE(110, Fault.CALLER, Retry.NO,
            "The mode of the group does not allow this operation.",
            "Check the mode with `weir group show`."),
    /** The topic to write to does not exist. */
    NO_TOPIC(201, Fault.CALLER, Retry.AFTER,
            "The topic to write to does not exist.",
            "Create it with `weir topic create`, or check the name with `weir topic ls`."),
    /** The program of the topic trapped. */
    TRAP(202, Fault.CALLER, Retry.NO,
            "The program of the topic trapped.",
            "Test the program with this intention; the message names the trap."),
    /** The program of the topic used up its fuel. */
    OUT_OF_FUEL(203, Fault.CALLER, Retry.NO,
            "The program of the topic used up its fuel.",
            "Make the program do less for each intention, or raise the fuel of the topic."),
    /** A limit was reached: of the topic (size of a key or value), the store (number of topics) or the program. */
    LIMIT(204, Fault.CALLER, Retry.NO,
            "A limit was reached: of the topic (size of a key or value), the store (number of topics) or the program.",
            "Write or emit less, or raise the limit that is named, for example with `weir topic set`."),
    /** The code is not a program that this store can run. */
    BAD_PROGRAM(205, Fault.CALLER, Retry.NO,
            "The code is not a program that this store can run.",
            "Correct what is named; `weir program check FILE` tries a module without a store."),
    /** The topic is stopped because nodes disagreed about it. */
    QUARANTINED(206, Fault.US, Retry.AFTER,
            "The topic is stopped because nodes disagreed about it.",
            "Let an operator find the cause; then `weir program quarantine TOPIC --release` or `weir program replace TOPIC FILE` lets the topic accept writes again."),
    /** Another node is the leader and accepts the writes. */
    REDIRECT(301, Fault.ENVIRONMENT, Retry.AFTER,
            "Another node is the leader and accepts the writes.",
            "Send the request again to the address that is named."),
    /** No leader is known at present. */
    NO_LEADER(302, Fault.ENVIRONMENT, Retry.AFTER,
            "No leader is known at present.",
            "Send the request again after a pause; an election takes about a second."),
    /** The queue of the store is full. */
    BUSY(303, Fault.ENVIRONMENT, Retry.AFTER,
            "The queue of the store is full.",
            "Send the request again after the pause that is named."),
    /** The caller exceeds its rate limit. */
    RATE(304, Fault.CALLER, Retry.AFTER,
            "The caller exceeds its rate limit.",
            "Send the request again after the pause that is named, and send more slowly."),
    /** Nonces before this one have not arrived. */
    NONCE_GAP(305, Fault.CALLER, Retry.AFTER,
            "Nonces before this one have not arrived.",
            "Send again, starting with the expected nonce."),
    /** The session was idle for too long and has expired. */
    SESSION_EXPIRED(306, Fault.CALLER, Retry.NO,
            "The session was idle for too long and has expired.",
            "Open a new session, and read the topic to find out which intentions in flight were executed."),
    /** The request has no credentials, or they are not valid. */
    UNAUTHENTICATED(307, Fault.CALLER, Retry.AFTER,
            "The request has no credentials, or they are not valid.",
            "Give valid credentials."),
    /** The caller has no right to do this. */
    FORBIDDEN(308, Fault.CALLER, Retry.AFTER,
            "The caller has no right to do this.",
            "Ask for the right that is named."),
    /** A name, key, value, batch or count is over its limit. */
    TOO_LARGE(309, Fault.CALLER, Retry.NO,
            "A name, key, value, batch or count is over its limit.",
            "Send less in one call, or raise the limit that is named, up to its maximum."),
    /** The request cannot be read or contradicts itself. */
    BAD_REQUEST(310, Fault.CALLER, Retry.NO,
            "The request cannot be read or contradicts itself.",
            "Correct the request at the place that is named."),
    /** This build or version does not support what the caller asked for. */
    UNSUPPORTED(311, Fault.CALLER, Retry.NO,
            "This build or version does not support what the caller asked for.",
            "Use a build or version that supports it."),
    /** The store accepts no writes at present; reads and listeners continue. */
    READ_ONLY(312, Fault.ENVIRONMENT, Retry.AFTER,
            "The store accepts no writes at present; reads and listeners continue.",
            "Free disk space, or repair the file that is named; writes resume by themselves."),
    /** The offset is before the first record that is retained. */
    GONE(313, Fault.CALLER, Retry.NO,
            "The offset is before the first record that is retained.",
            "Start from an offset in the range that is named."),
    /** The nonce was used before, for an intention with other bytes. */
    NONCE_REUSED(314, Fault.CALLER, Retry.NO,
            "The nonce was used before, for an intention with other bytes.",
            "Use a separate nonce for each intention; two writers must not share a client id."),
    /** The client id has opened a newer session, so this one has ended. */
    SUPERSEDED(315, Fault.CALLER, Retry.NO,
            "The client id has opened a newer session, so this one has ended.",
            "Use a separate client id for each writer."),
    /** The topic to read does not exist. */
    TOPIC_UNKNOWN(316, Fault.CALLER, Retry.AFTER,
            "The topic to read does not exist.",
            "Check the name with `weir topic ls`."),
    /** The topic holds no value for the key. */
    KEY_ABSENT(317, Fault.CALLER, Retry.AFTER,
            "The topic holds no value for the key.",
            "Check the key; `weir export TOPIC --latest --columns key` lists all keys."),
    /** The topic has no record at the offset. */
    RECORD_ABSENT(318, Fault.CALLER, Retry.AFTER,
            "The topic has no record at the offset.",
            "Check the first and last offset with `weir topic show`."),
    /** The node has not yet applied the offset that the reader requires. */
    LAGGING(319, Fault.ENVIRONMENT, Retry.AFTER,
            "The node has not yet applied the offset that the reader requires.",
            "Read again after a pause, or read from another node."),
    /** The node is shutting down and accepts no new requests. */
    DRAINING(320, Fault.ENVIRONMENT, Retry.AFTER,
            "The node is shutting down and accepts no new requests.",
            "Send the request to another node, or send it again after the restart."),
    /** The topic name is empty, too long, reserved, or has a character outside its alphabet. */
    BAD_NAME(321, Fault.CALLER, Retry.NO,
            "The topic name is empty, too long, reserved, or has a character outside its alphabet.",
            "Use 1 to 255 of A-Z a-z 0-9 . _ - and do not begin with a dot."),
    /** The topic has no group of this name. */
    GROUP_UNKNOWN(322, Fault.CALLER, Retry.NO,
            "The topic has no group of this name.",
            "Check the name with `weir group ls`."),
    /** The server is opening its store and accepts no requests yet. */
    OPENING(323, Fault.ENVIRONMENT, Retry.AFTER,
            "The server is opening its store and accepts no requests yet.",
            "Send the request again after the pause that is named; /readyz answers 200 when the store is open."),
    /** The operating system could not carry out an operation on a file of the store. */
    IO(401, Fault.ENVIRONMENT, Retry.AFTER,
            "The operating system could not carry out an operation on a file of the store.",
            "Check the operation, file and cause that are named."),
    /** A write or sync of the log failed, so this handle accepts no more writes. */
    IO_FATAL(402, Fault.ENVIRONMENT, Retry.NO,
            "A write or sync of the log failed, so this handle accepts no more writes.",
            "Check the disk, then close and reopen the store; no acknowledged write is lost."),
    /** The file system has no space left for the store. */
    DISK_FULL(403, Fault.ENVIRONMENT, Retry.AFTER,
            "The file system has no space left for the store.",
            "Free space on the file system that is named."),
    /** Another process has the directory open. */
    LOCKED(404, Fault.ENVIRONMENT, Retry.AFTER,
            "Another process has the directory open.",
            "Use the process whose id is named, or end this process and try again."),
    /** Bytes of the store have changed or are missing. */
    DAMAGED(405, Fault.ENVIRONMENT, Retry.NO,
            "Bytes of the store have changed or are missing.",
            "Run `weir verify` for the full list, then restore from a backup."),
    /** The directory holds no store. */
    NOT_A_STORE(406, Fault.CALLER, Retry.NO,
            "The directory holds no store.",
            "Check the path given to `--at`."),
    /** The directory to create a store in is not empty. */
    STORE_EXISTS(407, Fault.CALLER, Retry.NO,
            "The directory to create a store in is not empty.",
            "Name an empty or new directory."),
    /** The store was written by a newer version; nothing was changed. */
    FORMAT_NEWER(408, Fault.CALLER, Retry.NO,
            "The store was written by a newer version; nothing was changed.",
            "Open it with that version or a later one."),
    /** The operating system does not allow this process to use the directory. */
    NOT_PERMITTED(409, Fault.ENVIRONMENT, Retry.AFTER,
            "The operating system does not allow this process to use the directory.",
            "Check owner, mode and mount options of the path that is named."),
    /** The file system loses everything in a power cut, and the caller did not allow that. */
    VOLATILE(410, Fault.CALLER, Retry.NO,
            "The file system loses everything in a power cut, and the caller did not allow that.",
            "Use a directory on a disk, or allow a volatile file system."),
    /** The store runs programs, and this build has no program engine. */
    ENGINE_MISSING(411, Fault.CALLER, Retry.NO,
            "The store runs programs, and this build has no program engine.",
            "Open it with a build that has the engine."),
    /** A replay of the log gave a state that differs from the recorded one. */
    DIVERGED(412, Fault.US, Retry.NO,
            "A replay of the log gave a state that differs from the recorded one.",
            "Keep a copy of the directory and report it: equal logs must give equal states."),
    /** The process may not open as many files as the store needs. */
    TOO_FEW_DESCRIPTORS(413, Fault.ENVIRONMENT, Retry.AFTER,
            "The process may not open as many files as the store needs.",
            "Raise the limit of open files, as with `ulimit -n`."),
    /** The store was closed before or during the call. */
    CLOSED(414, Fault.CALLER, Retry.NO,
            "The store was closed before or during the call.",
            "Open the store again."),
    /** An option has a value outside its range, or contradicts the options the store was created with. */
    BAD_OPTION(415, Fault.CALLER, Retry.NO,
            "An option has a value outside its range, or contradicts the options the store was created with.",
            "Correct the option that is named."),
    /** The store was opened for reading only, and the call writes. */
    OPENED_READ_ONLY(416, Fault.CALLER, Retry.NO,
            "The store was opened for reading only, and the call writes.",
            "Open the store for writing."),
    /** The process that writes the store changed or removed files that were being read. */
    CHANGED_WHILE_READ(417, Fault.ENVIRONMENT, Retry.AFTER,
            "The process that writes the store changed or removed files that were being read.",
            "Open the store again."),
    /** The log after the newest snapshot holds more records than a read-only open may keep in memory. */
    READ_ONLY_LIMIT(418, Fault.ENVIRONMENT, Retry.AFTER,
            "The log after the newest snapshot holds more records than a read-only open may keep in memory.",
            "Let the program that writes the store write a snapshot, or close the program and open the store for writing once; then open it again."),
    /** The intention was sent, and its outcome is not known. */
    INDETERMINATE(501, Fault.ENVIRONMENT, Retry.YES,
            "The intention was sent, and its outcome is not known.",
            "Send it again with the same client id and nonce: it is executed at most once."),
    /** The deadline passed before anything was changed. */
    DEADLINE(502, Fault.ENVIRONMENT, Retry.YES,
            "The deadline passed before anything was changed.",
            "Try again, or allow more time."),
    /** No connection to the address could be made. */
    UNREACHABLE(503, Fault.ENVIRONMENT, Retry.AFTER,
            "No connection to the address could be made.",
            "Check the address, and that the server is running."),
    /** The peer sent bytes that the protocol does not allow. */
    PROTOCOL(504, Fault.PEER, Retry.NO,
            "The peer sent bytes that the protocol does not allow.",
            "Check that the address is that of a Weir server of a matching version."),
    /** The value of `--at` is neither a directory nor an address of a known kind. */
    BAD_ADDRESS(505, Fault.CALLER, Retry.NO,
            "The value of `--at` is neither a directory nor an address of a known kind.",
            "Give a directory, `unix:PATH`, `weir://HOST[:PORT]` or `weirs://HOST[:PORT]`."),
    /** A line or item of the input cannot be read. */
    BAD_LINE(506, Fault.CALLER, Retry.NO,
            "A line or item of the input cannot be read.",
            "Correct it at the line and column that are named, or choose `--on-error skip`."),
    /** The input differs from the one that the import began with. */
    SOURCE_CHANGED(507, Fault.CALLER, Retry.NO,
            "The input differs from the one that the import began with.",
            "Give the same input again, or begin a new import."),
    /** The caller cancelled the operation. */
    CANCELLED(508, Fault.CALLER, Retry.YES,
            "The caller cancelled the operation.",
            "Start it again if it is still needed."),
    /** Another process listens at the address that was to be served. */
    ADDRESS_TAKEN(509, Fault.ENVIRONMENT, Retry.AFTER,
            "Another process listens at the address that was to be served.",
            "End that process, or serve at another address."),
    /** A required pointer is NULL. */
    NULL_POINTER(601, Fault.CALLER, Retry.NO,
            "A required pointer is NULL.",
            "Pass a valid address."),
    /** A pointer is not aligned for the type of its target. */
    MISALIGNED(602, Fault.CALLER, Retry.NO,
            "A pointer is not aligned for the type of its target.",
            "Pass the address of an object of the type."),
    /** A length or count is larger than memory, or than the call allows. */
    BAD_LENGTH(603, Fault.CALLER, Retry.NO,
            "A length or count is larger than memory, or than the call allows.",
            "Pass the true length, within the limits that `weir.h` states."),
    /** The handle was released, is of another type, or never was a handle. */
    BAD_HANDLE(604, Fault.CALLER, Retry.NO,
            "The handle was released, is of another type, or never was a handle.",
            "Use only handles that the library returned, until they are released."),
    /** Another thread is inside a call with this handle. */
    HANDLE_BUSY(605, Fault.CALLER, Retry.YES,
            "Another thread is inside a call with this handle.",
            "Use the handle from one thread at a time."),
    /** A bug in Weir ended the call. */
    PANIC(606, Fault.US, Retry.NO,
            "A bug in Weir ended the call.",
            "Release the handle, and report the bug with the message."),
    /** A bug in Weir ended an earlier call with this handle. */
    HANDLE_POISONED(607, Fault.US, Retry.NO,
            "A bug in Weir ended an earlier call with this handle.",
            "Release the handle, and create a new one."),
    /** A structure does not state its size, or sets fields that this version of the library does not know. */
    BAD_STRUCT(608, Fault.CALLER, Retry.NO,
            "A structure does not state its size, or sets fields that this version of the library does not know.",
            "Set `struct_size` to the size of the structure, and everything unknown to zero."),
    /** The version of the library differs from the one that the program was built for. */
    ABI_MISMATCH(609, Fault.ENVIRONMENT, Retry.NO,
            "The version of the library differs from the one that the program was built for.",
            "Install the library of the version that is named."),
    /** The process has the maximum number of handles and pages. */
    TOO_MANY_HANDLES(610, Fault.CALLER, Retry.AFTER,
            "The process has the maximum number of handles and pages.",
            "Release handles and pages that are not needed."),
    /** The text of a query cannot be read at the place that is named. */
    SYNTAX(701, Fault.CALLER, Retry.NO,
            "The text of a query cannot be read at the place that is named.",
            "Correct the text at that place; `weir help guide query` prints the grammar."),
    /** A path that may select several values is used where one value is needed. */
    NOT_SINGULAR(702, Fault.CALLER, Retry.NO,
            "A path that may select several values is used where one value is needed.",
            "Use names and indexes only, such as `$.a.b` or `$['a'][0]`."),
    /** A query has more text, nesting, paths, keys or sources than is allowed. */
    TOO_COMPLEX(703, Fault.CALLER, Retry.NO,
            "A query has more text, nesting, paths, keys or sources than is allowed.",
            "Make it simpler, or raise the limit that is named."),
    /** A query uses a parameter that was given no value. */
    NO_PARAM(704, Fault.CALLER, Retry.NO,
            "A query uses a parameter that was given no value.",
            "Give the parameter a value."),
    /** The resume token is of another query. */
    TOKEN_MISMATCH(705, Fault.CALLER, Retry.NO,
            "The resume token is of another query.",
            "Ask the same query with the same options, or begin without a token."),
    /** The resume token is damaged, or has an unknown format. */
    TOKEN_CORRUPT(706, Fault.CALLER, Retry.NO,
            "The resume token is damaged, or has an unknown format.",
            "Pass the token unchanged, or begin without one."),
    /** A resume token for this position would be larger than is allowed. */
    TOKEN_TOO_LARGE(707, Fault.CALLER, Retry.NO,
            "A resume token for this position would be larger than is allowed.",
            "Order by shorter keys, or use fewer sources."),
    /** A query of this kind cannot be resumed. */
    NO_TOKEN(708, Fault.CALLER, Retry.NO,
            "A query of this kind cannot be resumed.",
            "Read what `explain` says about resuming, and order the query accordingly."),
    /** A page holds bytes that are not UTF-8. */
    NOT_UTF8(709, Fault.CALLER, Retry.NO,
            "A page holds bytes that are not UTF-8.",
            "Correct the data at the byte that is named."),
    /** A page breaks the grammar of JSON where the query has to read it. */
    NOT_JSON(710, Fault.CALLER, Retry.NO,
            "A page breaks the grammar of JSON where the query has to read it.",
            "Correct the data at the byte that is named."),
    /** A string in a page holds a control character. */
    CONTROL_CHARACTER(711, Fault.CALLER, Retry.NO,
            "A string in a page holds a control character.",
            "Escape the character at the byte that is named."),
    /** A string in a page does not end. */
    UNTERMINATED_STRING(712, Fault.CALLER, Retry.NO,
            "A string in a page does not end.",
            "Correct the data at the byte that is named."),
    /** Brackets or braces in a page do not match. */
    UNBALANCED(713, Fault.CALLER, Retry.NO,
            "Brackets or braces in a page do not match.",
            "Correct the data at the byte that is named."),
    /** Bytes other than white space follow the end of a page. */
    TRAILING_DATA(714, Fault.CALLER, Retry.NO,
            "Bytes other than white space follow the end of a page.",
            "Check the shape that was named for the page, and the byte that is named."),
    /** A value in a page is nested deeper than is allowed. */
    TOO_DEEP(715, Fault.CALLER, Retry.NO,
            "A value in a page is nested deeper than is allowed.",
            "Raise the limit of depth if the data is to be trusted."),
    /** A page or an item in it is larger than is allowed. */
    PAGE_TOO_LARGE(716, Fault.CALLER, Retry.NO,
            "A page or an item in it is larger than is allowed.",
            "Ask for smaller pages, or raise the limit that is named."),
    /** A page lacks the array of items that its shape names. */
    BAD_ENVELOPE(717, Fault.CALLER, Retry.NO,
            "A page lacks the array of items that its shape names.",
            "Check the shape that was named for the page."),
    /** A member name on the path to a selected value occurs twice in one object. */
    REPEATED_NAME(718, Fault.CALLER, Retry.NO,
            "A member name on the path to a selected value occurs twice in one object.",
            "Correct the data, or check at the level `structural`, where the first one counts."),
    /** A source that was declared as sorted has an item out of order. */
    SOURCE_NOT_SORTED(719, Fault.CALLER, Retry.NO,
            "A source that was declared as sorted has an item out of order.",
            "Sort the source, or let the query sort it."),
    /** A value to order by is an array or an object. */
    ORDER_KEY_TYPE(720, Fault.CALLER, Retry.NO,
            "A value to order by is an array or an object.",
            "Order by a scalar, or choose `complex` = `rank`."),
    /** A value to group by is an array or an object. */
    GROUP_KEY_TYPE(721, Fault.CALLER, Retry.NO,
            "A value to group by is an array or an object.",
            "Group by a scalar."),
    /** A number to sum is larger than 10^400, or closer to 0 than 10^-400. */
    NUMBER_RANGE(722, Fault.CALLER, Retry.NO,
            "A number to sum is larger than 10^400, or closer to 0 than 10^-400.",
            "Correct the number that is named, or leave it out with a filter."),
    /** The query has no source of this number or name. */
    UNKNOWN_SOURCE(723, Fault.CALLER, Retry.NO,
            "The query has no source of this number or name.",
            "Use a number that was returned when the source was added."),
    /** The source was finished or replaced before. */
    SOURCE_FINISHED(724, Fault.CALLER, Retry.NO,
            "The source was finished or replaced before.",
            "Add no more pages to it."),
    /** The page was not accepted, because pages in memory would exceed the budget. */
    OVER_BUDGET(725, Fault.CALLER, Retry.AFTER,
            "The page was not accepted, because pages in memory would exceed the budget.",
            "Read results, release result pages, and pass the page again; or raise the budget."),
    /** Sorting would hold more bytes than the budget allows. */
    SORT_BUDGET(726, Fault.CALLER, Retry.NO,
            "Sorting would hold more bytes than the budget allows.",
            "Set a limit, read sources that are sorted, or raise the budget."),
    /** There are more groups than the budget allows. */
    GROUP_BUDGET(727, Fault.CALLER, Retry.NO,
            "There are more groups than the budget allows.",
            "Order by the group keys, filter, or raise the budget."),
    /** There are more distinct values than the budget allows. */
    DISTINCT_BUDGET(728, Fault.CALLER, Retry.NO,
            "There are more distinct values than the budget allows.",
            "Order by the selected value, filter, or raise the budget."),
    /** A source was split too often without a page in between. */
    SPLIT_LOOP(729, Fault.CALLER, Retry.NO,
            "A source was split too often without a page in between.",
            "Check the service that answers with splits."),
    /** The resume token names sources that have rows left and were not added. */
    SOURCES_OWED(730, Fault.CALLER, Retry.AFTER,
            "The resume token names sources that have rows left and were not added.",
            "Add the sources that are named, or mark those that no longer exist as abandoned."),
    /** A bug in Weir: an assertion failed. */
    INTERNAL(901, Fault.US, Retry.NO,
            "A bug in Weir: an assertion failed.",
            "Report it with the text of the message."),
    /** An error of a newer library. */
    UNKNOWN(0, Fault.US, Retry.NO,
            "The library is newer than this package and has an error that it does not know.",
            "Use the package of the library's version.");

    /** The cause of an error. */
    public enum Fault {
        /** The caller requested something invalid or impossible. */
        CALLER,
        /** The other side of a connection broke the protocol. */
        PEER,
        /** Disk, network, operating system or load. */
        ENVIRONMENT,
        /** Weir itself. */
        US
    }

    /** Whether a retry can succeed. */
    public enum Retry {
        /** At once. */
        YES,
        /** Later, or after the advice was followed. */
        AFTER,
        /** Never: a retry fails with an equal error. */
        NO
    }

    private final int number;
    private final Fault fault;
    private final Retry retry;
    private final String sentence;
    private final String advice;

    ErrorCode(int number, Fault fault, Retry retry, String sentence, String advice) {
        this.number = number;
        this.fault = fault;
        this.retry = retry;
        this.sentence = sentence;
        this.advice = advice;
    }

    /** The number; 0 for an error that this package does not know. */
    public int number() {
        return number;
    }

    /** The cause of the error. */
    public Fault fault() {
        return fault;
    }

    /** Whether a retry can succeed. */
    public Retry retry() {
        return retry;
    }

    /** The meaning, without the values of one case. */
    public String sentence() {
        return sentence;
    }

    /** The advice. */
    public String advice() {
        return advice;
    }

    /** The error with this number; {@link #UNKNOWN} if there is none. */
    public static ErrorCode of(int number) {
        for (ErrorCode code : values()) {
            if (code.number == number) {
                return code;
            }
        }
        return UNKNOWN;
    }
}
