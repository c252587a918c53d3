package weir;

/**
 * A page that a query would like.
 *
 * @param source whose page
 * @param continuation what came with the page before it, or what the source began with; null when a
 *     first page has no name
 * @param required whether nothing goes on without it; else it is worth fetching ahead
 * @param hint a suggested size in bytes
 */
public record Need(Source source, byte[] continuation, boolean required, long hint) {}
