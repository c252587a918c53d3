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

    /** A compaction may remove records whose key was written again. */
    public TopicOptions latest() {
        latest = true;
        return this;
    }

    /** How long a compaction keeps DELETE records, in milliseconds. */
    public TopicOptions tombstoneTtlMs(long tombstoneTtlMs) {
        this.tombstoneTtlMs = tombstoneTtlMs;
        return this;
    }

    /** For how long a record is too young for a compaction, in milliseconds. */
    public TopicOptions compactionLagMs(long compactionLagMs) {
        this.compactionLagMs = compactionLagMs;
        return this;
    }

    /** Bytes of a key. */
    public TopicOptions keyBytes(long keyBytes) {
        this.keyBytes = keyBytes;
        return this;
    }

    /** Bytes of a value. */
    public TopicOptions valueBytes(long valueBytes) {
        this.valueBytes = valueBytes;
        return this;
    }

    /** Keys with a value. */
    public TopicOptions keys(long keys) {
        this.keys = keys;
        return this;
    }

    /** Milliseconds after which a record may go. */
    public TopicOptions retentionAgeMs(long retentionAgeMs) {
        this.retentionAgeMs = retentionAgeMs;
        return this;
    }

    /** Bytes of records that stay. */
    public TopicOptions retentionBytes(long retentionBytes) {
        this.retentionBytes = retentionBytes;
        return this;
    }

    /** Records that stay. */
    public TopicOptions retentionRecords(long retentionRecords) {
        this.retentionRecords = retentionRecords;
        return this;
    }

    /** Fuel of the program of the topic. */
    public TopicOptions fuel(long fuel) {
        this.fuel = fuel;
        return this;
    }

    /** Bytes of its memory. */
    public TopicOptions memoryBytes(long memoryBytes) {
        this.memoryBytes = memoryBytes;
        return this;
    }

    /** Records that it may write for an intention. */
    public TopicOptions emits(long emits) {
        this.emits = emits;
        return this;
    }

    /** Bytes of them. */
    public TopicOptions emitBytes(long emitBytes) {
        this.emitBytes = emitBytes;
        return this;
    }

    /** Entries of its state. */
    public TopicOptions stateEntries(long stateEntries) {
        this.stateEntries = stateEntries;
        return this;
    }

    /** Bytes of its state. */
    public TopicOptions stateBytes(long stateBytes) {
        this.stateBytes = stateBytes;
        return this;
    }

    /** What the store keeps of the program between calls. */
    public TopicOptions programState(ProgramState state) {
        this.state = state;
        return this;
    }

    /** Keeps what these groups have not passed. */
    public TopicOptions holdForGroups(List<String> names) {
        groups.addAll(names);
        return this;
    }

    /** Writes the structure of the library. */
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
                into.set(JAVA_LONG, NUMBERS + (long) at * Long.BYTES, numbers[at]);
            }
        }
        into.set(JAVA_INT, 4, set);
        into.set(JAVA_INT, 8, latest ? 1 : 0);
        into.set(JAVA_INT, 12, state.ordinal());
        into.set(ADDRESS, 128, Lib.texts(call, groups));
        into.set(JAVA_LONG, 136, groups.size());
        return into;
    }

    private static final long BYTES = 144;
    private static final long NUMBERS = 16;
}
