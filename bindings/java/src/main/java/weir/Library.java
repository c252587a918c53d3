package weir;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.util.Optional;

/**
 * Finds the library, by a property or an environment variable, otherwise by the loader of the system, and checks
 * its version.
 */
final class Library {
    /** The version of the interface that this package needs. */
    private static final int ABI_VERSION = 7;
    private static final String DEFAULT = "libweir.so.0";

    /** Why the library cannot be used. */
    private record Problem(ErrorCode code, String text) {}

    private static final SymbolLookup SYMBOLS;
    /** Null if the library can be used. */
    private static final Problem PROBLEM;

    static {
        SymbolLookup found = null;
        Problem problem;
        String name = name();
        if (ValueLayout.ADDRESS.byteSize() != Long.BYTES) {
            problem = new Problem(ErrorCode.UNSUPPORTED, "the library needs pointers of 64 bits");
        } else {
            try {
                found = load(name);
                problem = versionProblem(found, name);
            } catch (IllegalArgumentException none) {
                problem = new Problem(ErrorCode.UNSUPPORTED, "cannot load `" + name
                        + "`; the system property `weir.library` or the variable WEIR_LIBRARY names the file");
            }
        }
        SYMBOLS = found;
        PROBLEM = problem;
    }

    private Library() {}

    private static String name() {
        String name = System.getProperty("weir.library");
        if (name == null) {
            name = System.getenv("WEIR_LIBRARY");
        }
        // For an empty name, the loader opens the program itself, which has none of the functions.
        return name == null || name.isEmpty() ? DEFAULT : name;
    }

    @SuppressWarnings("restricted")
    private static SymbolLookup load(String name) {
        return SymbolLookup.libraryLookup(name, Arena.global());
    }

    /** Returns null if the library has a compatible version. */
    private static Problem versionProblem(SymbolLookup symbols, String name) {
        Optional<MemorySegment> function = symbols.find("weir_abi_version");
        if (function.isEmpty()) {
            return new Problem(ErrorCode.UNSUPPORTED,
                    "`" + name + "` is not the library of Weir: it has no function `weir_abi_version`");
        }
        int version = version(function.get());
        if (isCompatible(version, ABI_VERSION)) {
            return null;
        }
        return new Problem(ErrorCode.ABI_MISMATCH,
                "the library has the interface " + (version >>> 16) + "." + (version & 0xffff)
                        + ", this package needs " + (ABI_VERSION >>> 16) + "." + (ABI_VERSION & 0xffff));
    }

    @SuppressWarnings("restricted")
    private static int version(MemorySegment function) {
        try {
            return (int) Linker.nativeLinker().downcallHandle(function, FunctionDescriptor.of(JAVA_INT)).invokeExact();
        } catch (Throwable thrown) {
            throw new IllegalStateException(thrown);
        }
    }

    /** Whether a library is compatible: an equal major version, and at least the wanted minor version. */
    static boolean isCompatible(int library, int wanted) {
        return library >>> 16 == wanted >>> 16 && (library & 0xffff) >= (wanted & 0xffff);
    }

    /** Throws an error if the library cannot be used. Every method that needs no open object calls this first. */
    static void requireLoaded() {
        if (PROBLEM != null) {
            throw new WeirException(PROBLEM.code(), PROBLEM.text());
        }
    }

    static SymbolLookup symbols() {
        requireLoaded();
        return SYMBOLS;
    }
}
