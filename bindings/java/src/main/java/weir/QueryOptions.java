package weir;

import java.util.ArrayList;
import java.util.List;

/**
 * What is asked, and what may be held for it. With defaults: every item, source by source.
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

    /** A logical expression of RFC 9535 in which @ and $ both stand for the item. */
    public QueryOptions where(String where) {
        this.where = where;
        return this;
    }

    /** Up to eight keys with commas between, each a path or {@code meta.NAME}, then optionally {@code asc} or {@code desc}. */
    public QueryOptions order(String order) {
        this.order = order;
        return this;
    }

    /** A path, or aggregates with commas between ({@code count}, {@code sum(PATH)}, {@code min}, {@code max}, {@code avg}), each optionally with {@code as NAME}. */
    public QueryOptions select(String select) {
        this.select = select;
        return this;
    }

    /** Up to eight paths with commas between, each optionally with {@code as NAME}. */
    public QueryOptions group(String group) {
        this.group = group;
        return this;
    }

    /** Keeps the first of each equal selected value. */
    public QueryOptions distinct() {
        distinct = true;
        return this;
    }

    /** Results to leave out first. */
    public QueryOptions offset(long offset) {
        this.offset = offset;
        return this;
    }

    /** Most results. */
    public QueryOptions limit(long limit) {
        this.limit = limit;
        return this;
    }

    /** Results at most; with a limit in the query too, the smaller one counts. */
    public QueryOptions top(long top) {
        this.top = top;
        return this;
    }

    /** How strings are ordered. */
    public QueryOptions strings(StringOrder strings) {
        this.strings = strings;
        return this;
    }

    /** What an array or object as order key is. */
    public QueryOptions complex(ComplexKeys complex) {
        this.complex = complex;
        return this;
    }

    /** What becomes of items without an order key. */
    public QueryOptions missing(MissingKeys missing) {
        this.missing = missing;
        return this;
    }

    /** How much of each page is checked, where its source does not say. */
    public QueryOptions level(Level level) {
        this.level = level;
        return this;
    }

    /** What becomes of items that are not JSON, where each item stands alone. */
    public QueryOptions badItems(BadItems badItems) {
        this.badItems = badItems;
        return this;
    }

    /** The order in which results come. */
    public QueryOptions mode(Mode mode) {
        this.mode = mode;
        return this;
    }

    /** What the query may hold. */
    public QueryOptions budgets(Budgets budgets) {
        this.budgets = budgets;
        return this;
    }

    /** Makes the query go on where another one stopped. Its sources are added again, under the same names. */
    public QueryOptions token(byte[] token) {
        this.token = token;
        return this;
    }

    /** Gets pages when the query needs them; see {@link Query#pages}. */
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
