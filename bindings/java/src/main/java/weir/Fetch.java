package weir;

import java.util.List;

/**
 * Enqueues at least one required page, or finishes or splits its source. If it does none of these, the
 * loop over results fails with {@link ErrorCode#BAD_OPTION}.
 */
@FunctionalInterface
public interface Fetch {
    /**
     * Fetches and enqueues pages.
     *
     * @param needs the requested pages, required pages first
     * @throws Exception an error, which the loop over results throws: a checked exception as the cause of an
     *     {@link IllegalStateException}
     */
    void fetch(List<Need> needs) throws Exception;
}
