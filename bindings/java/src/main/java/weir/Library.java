package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;

/** Finds the library: by a property or an environment variable, otherwise by the loader of the system. */
final class Library {
    private static final String DEFAULT = "libweir.so.0";

    private static final SymbolLookup SYMBOLS;
    private static final String MISSING;

    static {
        SymbolLookup found = null;
        String missing = null;
        String name = System.getProperty("weir.library");
        if (name == null) {
            name = System.getenv("WEIR_LIBRARY");
        }
        // For an empty name, the loader opens the program itself, which has none of the functions.
        if (name == null || name.isEmpty()) {
            name = DEFAULT;
        }
        if (ValueLayout.ADDRESS.byteSize() != Long.BYTES) {
            missing = "the library needs pointers of 64 bits";
        } else {
            try {
                found = load(name);
            } catch (IllegalArgumentException none) {
                missing = "cannot load `" + name
                        + "`; the system property `weir.library` or the variable WEIR_LIBRARY names the file";
            }
        }
        SYMBOLS = found;
        MISSING = missing;
    }

    private Library() {}

    @SuppressWarnings("restricted")
    private static SymbolLookup load(String name) {
        return SymbolLookup.libraryLookup(name, Arena.global());
    }

    /** Throws an error if there is no library. Every method that opens something calls this first. */
    static void requireLoaded() {
        if (MISSING != null) {
            throw new WeirException(ErrorCode.UNSUPPORTED, MISSING);
        }
    }

    static SymbolLookup symbols() {
        requireLoaded();
        return SYMBOLS;
    }
}
