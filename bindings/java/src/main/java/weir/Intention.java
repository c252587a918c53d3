package weir;

import java.util.List;
import java.util.Objects;

/**
 * One requested change. The operation decides which of the parts are used.
 */
public final class Intention {
    static final int PUT = 1;
    static final int DELETE = 2;
    static final int TRANSACTION = 3;
    static final int CREATE = 4;
    static final int DESTROY = 5;
    static final int ALTER = 6;
    static final int REPLACE = 7;

    private static final byte[] NOTHING = {};

    final int operation;
    String topic = "";
    byte[] key = NOTHING;
    byte[] value = NOTHING;
    byte[] meta = NOTHING;
    List<Expect> expects = List.of();
    List<Change> changes = List.of();
    TopicOptions options;
    byte[] code = NOTHING;
    byte[] args = NOTHING;
    byte[] replaced = NOTHING;

    private Intention(int operation) {
        this.operation = operation;
    }

    /** Sets the value of a key; appends if the key is empty or null. The value must not be null. */
    public static Intention put(byte[] key, byte[] value) {
        Intention intention = new Intention(PUT);
        intention.key = key;
        intention.value = Objects.requireNonNull(value, "value");
        return intention;
    }

    /** Deletes a key. */
    public static Intention delete(byte[] key) {
        Intention intention = new Intention(DELETE);
        intention.key = key;
        return intention;
    }

    /** Executes all changes, in order, or none. Conditions on keys name their key with {@link Expect#of}. */
    public static Intention transaction(List<Change> changes) {
        Intention intention = new Intention(TRANSACTION);
        intention.changes = List.copyOf(changes);
        return intention;
    }

    /** Creates the topic. */
    public static Intention create(TopicOptions options) {
        Intention intention = new Intention(CREATE);
        intention.options = options;
        return intention;
    }

    /** Creates the topic with a program, a WebAssembly module, that validates its intentions. */
    public static Intention create(TopicOptions options, byte[] program, byte[] args) {
        Intention intention = create(options);
        intention.code = program;
        intention.args = args;
        return intention;
    }

    /** Replaces the program of the topic. */
    public static Intention replace(byte[] program, byte[] args) {
        Intention intention = new Intention(REPLACE);
        intention.code = program;
        intention.args = args;
        return intention;
    }

    /** Destroys the topic. */
    public static Intention destroy() {
        return new Intention(DESTROY);
    }

    /** Replaces the options of the topic. */
    public static Intention alter(TopicOptions options) {
        Intention intention = new Intention(ALTER);
        intention.options = options;
        return intention;
    }

    /** Sets the topic. In calls of a {@link Topic}, the default is that topic. */
    public Intention of(String topic) {
        this.topic = topic;
        return this;
    }

    /** Sets the conditions. */
    public Intention expecting(Expect... expects) {
        this.expects = List.of(expects);
        return this;
    }

    /** For {@link #replace}: the SHA-256 of the program that must be current. Default: any program. */
    public Intention replacing(byte[] sha256) {
        replaced = sha256;
        return this;
    }

    /** Metadata that is stored with the record and not interpreted by the store. */
    public Intention meta(byte[] meta) {
        this.meta = meta;
        return this;
    }
}
