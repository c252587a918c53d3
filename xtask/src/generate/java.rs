//! `bindings/java/.../ErrorCode.java`: the error table in Java.

use crate::error_table::Entry;
use std::fmt::Write as _;

const HEAD: &str = "\
// Made by `cargo xtask gen` from vectors/errors.toml; do not edit.
package weir;

/** An error by its number, which is equal in every language and every protocol. */
public enum ErrorCode {
";

const FOOT: &str = "
    /** The cause of an error. */
    public enum Fault {
        /** The caller requested something invalid or impossible. */
        CALLER,
        /** The other side of a connection broke the protocol. */
        PEER,
        /** Disk, network, operating system or load. */
        ENVIRONMENT,
        /** Weir itself. */
        US
    }

    /** Whether a retry can succeed. */
    public enum Retry {
        /** At once. */
        YES,
        /** Later, or after the advice was followed. */
        AFTER,
        /** Never: a retry fails with an equal error. */
        NO
    }

    private final int number;
    private final Fault fault;
    private final Retry retry;
    private final String sentence;
    private final String advice;

    ErrorCode(int number, Fault fault, Retry retry, String sentence, String advice) {
        this.number = number;
        this.fault = fault;
        this.retry = retry;
        this.sentence = sentence;
        this.advice = advice;
    }

    /** The number; 0 for an error that this package does not know. */
    public int number() {
        return number;
    }

    /** The cause of the error. */
    public Fault fault() {
        return fault;
    }

    /** Whether a retry can succeed. */
    public Retry retry() {
        return retry;
    }

    /** The meaning, without the values of one case. */
    public String sentence() {
        return sentence;
    }

    /** The advice. */
    public String advice() {
        return advice;
    }

    /** The error with this number; {@link #UNKNOWN} if there is none. */
    public static ErrorCode of(int number) {
        for (ErrorCode code : values()) {
            if (code.number == number) {
                return code;
            }
        }
        return UNKNOWN;
    }
}
";

/// Generates the file.
pub(super) fn generate(entries: &[Entry]) -> anyhow::Result<String> {
    let mut out = HEAD.to_owned();
    for entry in entries {
        let (fault, retry) = (entry.fault.to_uppercase(), entry.retry.to_uppercase());
        writeln!(out, "    /** {} */", entry.sentence)?;
        writeln!(
            out,
            "    {}({}, Fault.{fault}, Retry.{retry},\n            {:?},\n            {:?}),",
            entry.name, entry.number, entry.sentence, entry.advice
        )?;
    }
    out.push_str("    /** An error of a newer library. */\n");
    out.push_str("    UNKNOWN(0, Fault.US, Retry.NO,\n");
    out.push_str("            \"The library is newer than this package and has an error that it does not know.\",\n");
    out.push_str("            \"Use the package of the library's version.\");\n");
    out.push_str(FOOT);
    Ok(out)
}
