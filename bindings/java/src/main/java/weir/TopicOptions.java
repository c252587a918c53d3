package weir;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/** Options of a topic. */
public final class TopicOptions {
    boolean latest;
    Long tombstoneTtlMs = null;
    Long compactionLagMs = null;
    Long keyBytes = null;
    Long valueBytes = null;
    Long keys = null;
    Long retentionAgeMs = null;
    Long retentionBytes = null;
    Long retentionRecords = null;
    Long fuel = null;
    Long memoryBytes = null;
    Long emits = null;
    Long emitBytes = null;
    Long stateEntries = null;
    Long stateBytes = null;
    ProgramState state = ProgramState.DEFAULT;
    List<String> groups = new ArrayList<>();

    /** All defaults. */
    public TopicOptions() {}

    /** Allows a compaction to remove records whose key has a newer value. */
    public TopicOptions latest() {
        latest = true;
        return this;
    }

    /** How long a compaction retains DELETE records, in milliseconds. */
    public TopicOptions tombstoneTtlMs(long tombstoneTtlMs) {
        this.tombstoneTtlMs = tombstoneTtlMs;
        return this;
    }

    /** Minimum age of a record that a compaction may remove, in milliseconds. */
    public TopicOptions compactionLagMs(long compactionLagMs) {
        this.compactionLagMs = compactionLagMs;
        return this;
    }

    /** Limit of a key in bytes. */
    public TopicOptions keyBytes(long keyBytes) {
        this.keyBytes = keyBytes;
        return this;
    }

    /** Limit of a value in bytes. */
    public TopicOptions valueBytes(long valueBytes) {
        this.valueBytes = valueBytes;
        return this;
    }

    /** Limit of the number of keys with a value. */
    public TopicOptions keys(long keys) {
        this.keys = keys;
        return this;
    }

    /** Age after which a record may be removed, in milliseconds. */
    public TopicOptions retentionAgeMs(long retentionAgeMs) {
        this.retentionAgeMs = retentionAgeMs;
        return this;
    }

    /** Bytes of records that are retained. */
    public TopicOptions retentionBytes(long retentionBytes) {
        this.retentionBytes = retentionBytes;
        return this;
    }

    /** Number of records that are retained. */
    public TopicOptions retentionRecords(long retentionRecords) {
        this.retentionRecords = retentionRecords;
        return this;
    }

    /** Limit of the fuel of the topic's program for one call. */
    public TopicOptions fuel(long fuel) {
        this.fuel = fuel;
        return this;
    }

    /** Limit of the memory of the program in bytes. */
    public TopicOptions memoryBytes(long memoryBytes) {
        this.memoryBytes = memoryBytes;
        return this;
    }

    /** Limit of the records that the program may write for an intention. */
    public TopicOptions emits(long emits) {
        this.emits = emits;
        return this;
    }

    /** Limit of the bytes of these records. */
    public TopicOptions emitBytes(long emitBytes) {
        this.emitBytes = emitBytes;
        return this;
    }

    /** Limit of the entries of the program's state. */
    public TopicOptions stateEntries(long stateEntries) {
        this.stateEntries = stateEntries;
        return this;
    }

    /** Limit of the bytes of the program's state. */
    public TopicOptions stateBytes(long stateBytes) {
        this.stateBytes = stateBytes;
        return this;
    }

    /** The state of the program that the store retains between calls. */
    public TopicOptions programState(ProgramState state) {
        this.state = state;
        return this;
    }

    /** Retains the records that these groups have not acknowledged. */
    public TopicOptions holdForGroups(List<String> names) {
        groups.addAll(names);
        return this;
    }

    /** Fills the structure of the library. */
    MemorySegment fill(Arena call) {
        MemorySegment into = Lib.sized(call, BYTES);
        Long[] numbers = {
            tombstoneTtlMs, compactionLagMs, keyBytes, valueBytes, keys, retentionAgeMs,
            retentionBytes, retentionRecords, fuel, memoryBytes, emits, emitBytes, stateEntries,
            stateBytes
        };
        int set = 0;
        for (int at = 0; at < numbers.length; at++) {
            if (numbers[at] != null) {
                set |= 1 << at;
                long number = Weir.nonNegative(NAMES[at], numbers[at]);
                into.set(JAVA_LONG, NUMBERS + (long) at * Long.BYTES, number);
            }
        }
        into.set(JAVA_INT, 4, set);
        into.set(JAVA_INT, 8, latest ? 1 : 0);
        into.set(JAVA_INT, 12, state.ordinal());
        into.set(ADDRESS, 128, Lib.texts(call, groups));
        into.set(JAVA_LONG, 136, groups.size());
        return into;
    }

    private static final String[] NAMES = {
        "tombstoneTtlMs", "compactionLagMs", "keyBytes", "valueBytes", "keys", "retentionAgeMs",
        "retentionBytes", "retentionRecords", "fuel", "memoryBytes", "emits", "emitBytes",
        "stateEntries", "stateBytes"
    };
    private static final long BYTES = 144;
    private static final long NUMBERS = 16;
}
