package weir;

import java.util.List;

/**
 * Hands in at least one page that is required, or finishes or splits its source. One that does none of
 * these ends the loop over results with {@link ErrorCode#BAD_OPTION}.
 */
@FunctionalInterface
public interface Fetch {
    /**
     * Gets pages.
     *
     * @param needs what is needed, required pages first
     * @throws Exception what went wrong; it comes out of the loop over results
     */
    void fetch(List<Need> needs) throws Exception;
}
