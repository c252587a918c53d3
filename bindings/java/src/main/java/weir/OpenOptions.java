package weir;

import java.time.Duration;

/** How a store is opened. */
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

    /** When a write is answered. */
    public OpenOptions durability(Durability durability) {
        this.durability = durability;
        return this;
    }

    /** Of {@link Durability#INTERVAL}: the time until a sync. */
    public OpenOptions interval(Duration interval) {
        this.interval = interval;
        return this;
    }

    /** A directory without a store is an error. */
    public OpenOptions existing() {
        existing = true;
        return this;
    }

    /** A store that a server has open is used through its socket. */
    public OpenOptions orConnect() {
        orConnect = true;
        return this;
    }

    /** The name that others are told who find the store locked. */
    public OpenOptions program(String program) {
        this.program = program;
        return this;
    }

    /** Bounds keys (1 KiB). */
    public OpenOptions keyBytes(long keyBytes) {
        this.keyBytes = keyBytes;
        return this;
    }

    /** Bounds values (1 MiB). */
    public OpenOptions valueBytes(long valueBytes) {
        this.valueBytes = valueBytes;
        return this;
    }

    /** Bytes of log after the newest snapshot that make a new one (1 GiB). */
    public OpenOptions snapshotLogBytes(long snapshotLogBytes) {
        this.snapshotLogBytes = snapshotLogBytes;
        return this;
    }

    /** Bytes of a log segment (64 MiB). */
    public OpenOptions logSegmentBytes(long logSegmentBytes) {
        this.logSegmentBytes = logSegmentBytes;
        return this;
    }
}
