package weir;

import java.util.ArrayList;
import java.util.List;

/**
 * One supply of items. With defaults: pages are JSON arrays.
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

    /** For messages and tokens; empty: its number. */
    public SourceOptions name(String name) {
        this.name = name;
        return this;
    }

    /** Rank among equal items; without one after the sources that are there. */
    public SourceOptions ordinal(long ordinal) {
        this.ordinal = ordinal;
        return this;
    }

    /**
     * Where items are in a page: {@code array}, {@code lines}, {@code values} (one after the other),
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

    /** Names the first page, and is handed back when it is wanted. */
    public SourceOptions first(byte[] first) {
        this.first = first;
        return this;
    }

    /** Says that items come in the order of the query; it is checked. */
    public SourceOptions sorted() {
        sorted = true;
        return this;
    }

    /** Leaves that check out. */
    public SourceOptions trustOrder() {
        trustOrder = true;
        return this;
    }

    /** Says that the same continuation may give other items. */
    public SourceOptions unstable() {
        unstable = true;
        return this;
    }

    /** A path that orders and identifies items of equal keys, for tokens of unstable sources. */
    public SourceOptions tie(String tie) {
        this.tie = tie;
        return this;
    }

    /** Says that items are partial aggregates. */
    public SourceOptions partial() {
        partial = true;
        return this;
    }

    /** A value of {@code meta.NAME} that all items share: a JSON scalar. */
    public SourceOptions meta(String name, String value) {
        meta.add(new Field(name, value));
        return this;
    }

    /**
     * A lower bound for the order keys, JSON scalars; a source that is added to a merge under way
     * needs one.
     */
    public SourceOptions bound(List<String> keys) {
        bound.addAll(keys);
        return this;
    }
}
