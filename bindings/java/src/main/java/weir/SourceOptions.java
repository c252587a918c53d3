package weir;

import java.util.ArrayList;
import java.util.List;

/**
 * One source of items. By default, its pages are JSON arrays.
 */
public final class SourceOptions {
    String name = "";
    Long ordinal = null;
    String shape = "";
    Level level = Level.DEFAULT;
    byte[] first = null;
    boolean sorted;
    boolean trustOrder;
    boolean unstable;
    String tie = "";
    boolean partial;
    List<Field> meta = new ArrayList<>();
    List<String> bound = new ArrayList<>();

    /** All defaults. */
    public SourceOptions() {}

    /** The name in messages and tokens; empty: the number of the source. */
    public SourceOptions name(String name) {
        this.name = name;
        return this;
    }

    /** Rank among equal items. Default: after the sources that already exist. */
    public SourceOptions ordinal(long ordinal) {
        this.ordinal = ordinal;
        return this;
    }

    /**
     * Where the items of a page are: {@code array}, {@code lines}, {@code values} (one after the other),
     * {@code single}, {@code framed}, or {@code member:PATH} for the array at a path.
     */
    public SourceOptions shape(String shape) {
        this.shape = shape;
        return this;
    }

    /** How much of a page is checked. */
    public SourceOptions level(Level level) {
        this.level = level;
        return this;
    }

    /** Names the first page. The query returns it as the continuation of a {@link Need}. */
    public SourceOptions first(byte[] first) {
        this.first = first;
        return this;
    }

    /** Declares that items arrive in the order of the query, which is checked. */
    public SourceOptions sorted() {
        sorted = true;
        return this;
    }

    /** Disables the check of {@link #sorted}. */
    public SourceOptions trustOrder() {
        trustOrder = true;
        return this;
    }

    /** Declares that the same continuation may return other items. */
    public SourceOptions unstable() {
        unstable = true;
        return this;
    }

    /** A path that orders and identifies items with equal keys, for tokens of unstable sources. */
    public SourceOptions tie(String tie) {
        this.tie = tie;
        return this;
    }

    /** Declares that the items are partial aggregates. */
    public SourceOptions partial() {
        partial = true;
        return this;
    }

    /** A value of {@code meta.NAME} of all items: a JSON scalar. */
    public SourceOptions meta(String name, String value) {
        meta.add(new Field(name, value));
        return this;
    }

    /**
     * A lower bound of the order keys, JSON scalars. Required for a source that is added to a running merge.
     */
    public SourceOptions bound(List<String> keys) {
        bound.addAll(keys);
        return this;
    }
}
