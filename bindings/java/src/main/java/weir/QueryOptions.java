package weir;

import java.util.ArrayList;
import java.util.List;

/**
 * The clauses and limits of a query. The defaults select every item, source by source.
 */
public final class QueryOptions {
    String where = "";
    String order = "";
    String select = "";
    String group = "";
    boolean distinct;
    long offset = 0;
    Long limit = null;
    Long top = null;
    StringOrder strings = StringOrder.SCALAR;
    ComplexKeys complex = ComplexKeys.ERROR;
    MissingKeys missing = MissingKeys.FIRST;
    Level level = Level.DEFAULT;
    BadItems badItems = BadItems.ERROR;
    Mode mode = Mode.DEFAULT;
    Budgets budgets = new Budgets();
    byte[] token = null;
    List<Field> params = new ArrayList<>();
    Fetch fetch = null;

    /** All defaults. */
    public QueryOptions() {}

    /** A logical expression of RFC 9535, in which both @ and $ mean the item. */
    public QueryOptions where(String where) {
        this.where = where;
        return this;
    }

    /** Up to eight keys, separated by commas: each a path or {@code meta.NAME}, then optionally {@code asc} or {@code desc}. */
    public QueryOptions order(String order) {
        this.order = order;
        return this;
    }

    /**
     * A path, or aggregates separated by commas ({@code count}, {@code sum(PATH)}, {@code min}, {@code max},
     * {@code avg}), each optionally with {@code as NAME}. With several paths, a result is the item, without items
     * that have no value at any of them; {@link Page#values} returns the values.
     */
    public QueryOptions select(String select) {
        this.select = select;
        return this;
    }

    /** Up to eight paths, separated by commas, each optionally with {@code as NAME}. */
    public QueryOptions group(String group) {
        this.group = group;
        return this;
    }

    /** Retains the first of equal selected values. */
    public QueryOptions distinct() {
        distinct = true;
        return this;
    }

    /** Number of results to skip first. */
    public QueryOptions offset(long offset) {
        this.offset = offset;
        return this;
    }

    /** Largest number of results. */
    public QueryOptions limit(long limit) {
        this.limit = limit;
        return this;
    }

    /** An alias of {@link #limit}; if both are set, the smaller one applies. */
    public QueryOptions top(long top) {
        this.top = top;
        return this;
    }

    /** The order of strings. */
    public QueryOptions strings(StringOrder strings) {
        this.strings = strings;
        return this;
    }

    /** The treatment of an array or object as order key. */
    public QueryOptions complex(ComplexKeys complex) {
        this.complex = complex;
        return this;
    }

    /** The treatment of items without an order key. */
    public QueryOptions missing(MissingKeys missing) {
        this.missing = missing;
        return this;
    }

    /** How much of each page is checked, unless its source has a level. */
    public QueryOptions level(Level level) {
        this.level = level;
        return this;
    }

    /** The treatment of items that are not JSON, in shapes that have separate items. */
    public QueryOptions badItems(BadItems badItems) {
        this.badItems = badItems;
        return this;
    }

    /** The order of the results. */
    public QueryOptions mode(Mode mode) {
        this.mode = mode;
        return this;
    }

    /** Limits of the memory of the query. */
    public QueryOptions budgets(Budgets budgets) {
        this.budgets = budgets;
        return this;
    }

    /** Resumes the query that returned the token. Add its sources again, under their names. */
    public QueryOptions token(byte[] token) {
        this.token = token;
        return this;
    }

    /** Fetches pages when the query needs them; see {@link Query#pages}. */
    public QueryOptions fetch(Fetch fetch) {
        this.fetch = fetch;
        return this;
    }

    /** A value for {@code param('name')} in the expression: a JSON scalar. */
    public QueryOptions param(String name, String value) {
        params.add(new Field(name, value));
        return this;
    }
}
