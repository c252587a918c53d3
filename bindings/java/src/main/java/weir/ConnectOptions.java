package weir;

import java.time.Duration;

/** How a server is reached. */
public final class ConnectOptions {
    String token = "";
    String authority = "";
    String certificate = "";
    String key = "";
    String agent = "";
    Duration connectTimeout = Duration.ZERO;
    Duration patience = Duration.ZERO;
    boolean received;

    /** All defaults. */
    public ConnectOptions() {}

    /** Proof of identity. */
    public ConnectOptions token(String token) {
        this.token = token;
        return this;
    }

    /** For {@code weirs://}: file with the authority, PEM; else the system's. */
    public ConnectOptions authority(String authority) {
        this.authority = authority;
        return this;
    }

    /** For {@code weirs://}: file with the own certificate, PEM. */
    public ConnectOptions certificate(String certificate) {
        this.certificate = certificate;
        return this;
    }

    /** The file with its key. */
    public ConnectOptions key(String key) {
        this.key = key;
        return this;
    }

    /** Name and version of the program, for people. */
    public ConnectOptions agent(String agent) {
        this.agent = agent;
        return this;
    }

    /** Time for the first connection (5 s). */
    public ConnectOptions connectTimeout(Duration connectTimeout) {
        this.connectTimeout = connectTimeout;
        return this;
    }

    /** Time for an answer, and without any connection (30 s). */
    public ConnectOptions patience(Duration patience) {
        this.patience = patience;
        return this;
    }

    /**
     * Has the server say when a write is queued for its log ({@link Pending#awaitReceived}), which is a
     * packet more for each write.
     */
    public ConnectOptions received() {
        received = true;
        return this;
    }
}
