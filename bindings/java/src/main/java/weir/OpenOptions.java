package weir;

import java.time.Duration;

/** Options for opening a store. */
public final class OpenOptions {
    Durability durability = Durability.DEFAULT;
    Duration interval = Duration.ZERO;
    boolean existing;
    boolean orConnect;
    String program = "";
    long keyBytes = 0;
    long valueBytes = 0;
    long snapshotLogBytes = 0;
    long logSegmentBytes = 0;

    /** All defaults. */
    public OpenOptions() {}

    /** When a write is acknowledged. */
    public OpenOptions durability(Durability durability) {
        this.durability = durability;
        return this;
    }

    /** For {@link Durability#INTERVAL}: the longest time until the sync of a write (1 s). */
    public OpenOptions interval(Duration interval) {
        this.interval = interval;
        return this;
    }

    /** Makes the call fail if the directory has no store. */
    public OpenOptions existing() {
        existing = true;
        return this;
    }

    /** If a server has the store open, connects to it through its socket. */
    public OpenOptions orConnect() {
        orConnect = true;
        return this;
    }

    /** A name that is reported to others who find the store locked. */
    public OpenOptions program(String program) {
        this.program = program;
        return this;
    }

    /** Limit of a key in bytes (1 KiB). */
    public OpenOptions keyBytes(long keyBytes) {
        this.keyBytes = keyBytes;
        return this;
    }

    /** Limit of a value in bytes (1 MiB). */
    public OpenOptions valueBytes(long valueBytes) {
        this.valueBytes = valueBytes;
        return this;
    }

    /** Bytes of log after the last snapshot at which a new one is created (1 GiB). */
    public OpenOptions snapshotLogBytes(long snapshotLogBytes) {
        this.snapshotLogBytes = snapshotLogBytes;
        return this;
    }

    /** Size of a log segment in bytes (64 MiB). */
    public OpenOptions logSegmentBytes(long logSegmentBytes) {
        this.logSegmentBytes = logSegmentBytes;
        return this;
    }
}
