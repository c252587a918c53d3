package weir;

import java.time.Duration;

/** Options of a connection to a server. */
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

    /** A token that authenticates the client. */
    public ConnectOptions token(String token) {
        this.token = token;
        return this;
    }

    /** For {@code weirs://}: PEM file of the certificate authority. Default: the authorities of the system. */
    public ConnectOptions authority(String authority) {
        this.authority = authority;
        return this;
    }

    /** For {@code weirs://}: PEM file of the client certificate. */
    public ConnectOptions certificate(String certificate) {
        this.certificate = certificate;
        return this;
    }

    /** The PEM file with the key of the client certificate. */
    public ConnectOptions key(String key) {
        this.key = key;
        return this;
    }

    /** Name and version of the program, for people. */
    public ConnectOptions agent(String agent) {
        this.agent = agent;
        return this;
    }

    /** Limit for the first connection (5 s). */
    public ConnectOptions connectTimeout(Duration connectTimeout) {
        this.connectTimeout = connectTimeout;
        return this;
    }

    /** Limit for an answer, and for the time without any connection (30 s). */
    public ConnectOptions patience(Duration patience) {
        this.patience = patience;
        return this;
    }

    /**
     * Makes the server report when a write is queued for its log ({@link Pending#awaitReceived}). This costs
     * one more packet for each write.
     */
    public ConnectOptions received() {
        received = true;
        return this;
    }
}
