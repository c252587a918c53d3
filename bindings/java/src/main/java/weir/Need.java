package weir;

/**
 * A page that a query requests.
 *
 * @param source the source of the page
 * @param continuation the continuation of the previous page, or the first one of the source; null if the
 *     first page has no name
 * @param required whether the query cannot continue without it; otherwise it is worth reading ahead
 * @param hint a suggested size in bytes
 */
public record Need(Source source, byte[] continuation, boolean required, long hint) {}
