package weir;

/** A condition of an intention. If a condition fails, the verdict is INVALID with CONFLICT. */
public final class Expect {
    final int kind;
    final byte[] key;
    final long offset;

    private Expect(int kind, byte[] key, long offset) {
        this.kind = kind;
        this.key = key;
        this.offset = offset;
    }

    /** Sets the key of the condition. The default is the key of the intention. */
    public Expect of(byte[] key) {
        return new Expect(kind, key, offset);
    }

    /** The value of the key was written at this offset. */
    public static Expect keyAt(long offset) {
        return new Expect(1, null, offset);
    }

    /** The key has no value. */
    public static Expect keyAbsent() {
        return new Expect(2, null, 0);
    }

    /** The key has a value. */
    public static Expect keyPresent() {
        return new Expect(3, null, 0);
    }

    /** The last record of the topic has this offset. */
    public static Expect topicAt(long offset) {
        return new Expect(4, null, offset);
    }

    /** The last record of the topic has this offset, or the topic does not exist. */
    public static Expect topicAbsentOrAt(long offset) {
        return new Expect(5, null, offset);
    }

    /** The topic exists and has no record after the one that created it. */
    public static Expect topicEmpty() {
        return new Expect(6, null, 0);
    }

    /** This intention created the topic. */
    public static Expect incarnation(long intention) {
        return new Expect(7, null, intention);
    }
}
