//! The table of permitted imports, and the check of every manifest against it.
//!
//! Imports go strictly downward by layer. A crate may import the crates in its row, our own and
//! foreign ones, and those in `ANYWHERE`. A crate without a row needs a decision record first.
//!
//! Invariant: a row names only crates that its crate imports.

use super::Findings;
use crate::metadata::{Dependency, Package};

/// One row of the table.
struct Row {
    /// Name of the package.
    name: &'static str,
    /// Layer; a crate imports only from lower layers.
    layer: u8,
    /// Our own crates that it may import.
    ours: &'static [&'static str],
    /// Foreign crates that it may import, besides `ANYWHERE`.
    foreign: &'static [&'static str],
}

const TABLE: &[Row] = &[
    Row {
        name: "weir-scan",
        layer: 0,
        ours: &[],
        foreign: &[],
    },
    Row {
        name: "weir-psyc",
        layer: 0,
        ours: &[],
        foreign: &["memchr"],
    },
    Row {
        name: "weir-adf",
        layer: 0,
        ours: &[],
        foreign: &["jiff", "serde_json"],
    },
    Row {
        name: "weir-core",
        layer: 1,
        ours: &[],
        foreign: &[],
    },
    Row {
        name: "weir-query",
        layer: 2,
        ours: &["weir-core", "weir-scan"],
        foreign: &[],
    },
    Row {
        name: "weir-protocol",
        layer: 2,
        // The scanner for one type: the position at which an item of a page is invalid.
        ours: &["weir-core", "weir-psyc", "weir-scan"],
        foreign: &[],
    },
    Row {
        name: "weir-store",
        layer: 2,
        ours: &["weir-core"],
        // Date and time positions; modules in entries that another node appends.
        foreign: &["jiff", "memchr"],
    },
    Row {
        name: "weir-program",
        layer: 2,
        ours: &["weir-core", "weir-scan"],
        foreign: &[
            "wasmtime",
            "wasmi",
            "wasmparser",
            "wasm-encoder",
            "sha2",
            "rustc-demangle",
            "stacker",
            "blake3",
            "wat",
        ],
    },
    Row {
        name: "weir-raft",
        layer: 3,
        ours: &["weir-core", "weir-store"],
        // Random numbers, for simulations only (decision 0079).
        foreign: &[
            "futures-util",
            "openraft",
            "rand",
            "rustls",
            "tokio",
            "tokio-rustls",
        ],
    },
    Row {
        name: "weir-sim",
        layer: 4,
        ours: &["weir-core", "weir-store", "weir-raft"],
        foreign: &["tokio"],
    },
    Row {
        name: "weir",
        layer: 3,
        ours: &[
            "weir-core",
            "weir-query",
            "weir-protocol",
            "weir-store",
            "weir-program",
        ],
        // For connections to servers.
        foreign: &["rustls"],
    },
    Row {
        name: "weir-server",
        layer: 4,
        ours: &[
            "weir-core",
            "weir-query",
            "weir-protocol",
            "weir-store",
            "weir-raft",
        ],
        foreign: &[
            "base64",
            "data-encoding",
            "flate2",
            "httparse",
            "httpdate",
            "hyper",
            "hyper-util",
            "jiff",
            "rustls",
            "serde",
            "serde_json",
            "sha2",
            "subtle",
            "tokio",
            "tokio-rustls",
            "toml",
            "x509-parser",
            "zstd",
        ],
    },
    Row {
        name: "weir-capi",
        layer: 4,
        // The codec for packets. Core and protocol are for tests, which simulate a server.
        ours: &["weir", "weir-core", "weir-protocol", "weir-psyc"],
        foreign: &[],
    },
    Row {
        name: "weir-python",
        layer: 4,
        ours: &["weir"],
        foreign: &["pyo3"],
    },
    Row {
        name: "weir-node",
        layer: 4,
        ours: &["weir"],
        foreign: &["napi", "napi-derive"],
    },
    Row {
        name: "weir-jira",
        layer: 4,
        ours: &["weir", "weir-adf"],
        foreign: &[
            "uuid",
            "base64",
            "ureq",
            "rustls",
            "httparse",
            "serde",
            "serde_json",
            "jiff",
        ],
    },
    Row {
        name: "weir-emacs",
        layer: 5,
        ours: &["weir", "weir-jira", "weir-scan"],
        foreign: &["emacs", "nix", "serde", "serde_json", "unicode-width"],
    },
    Row {
        name: "weir-lab",
        layer: 5,
        // `micro-machine` measures the machine without a store.
        ours: &["weir-psyc", "weir-scan", "weir-adf", "weir-core", "weir"],
        foreign: &[
            "clap",
            "flate2",
            "memchr",
            "quick-xml",
            "serde",
            "serde_json",
            "signal-hook",
            "tempfile",
            "toml",
            "wait4",
            "wat",
            "zstd",
        ],
    },
    Row {
        name: "weir-cli",
        layer: 6,
        // The codec for `weir psyc`. The lab is a separate executable, so it is not imported.
        ours: &["weir", "weir-psyc", "weir-server", "weir-jira"],
        foreign: &[
            "anyhow",
            "base64",
            "clap",
            "clap_complete",
            "clap_mangen",
            "data-encoding",
            "flate2",
            "indicatif",
            "jiff",
            "mimalloc",
            "rcgen",
            "serde",
            "serde_json",
            "signal-hook",
            "tempfile",
            "toml",
            "zstd",
        ],
    },
    Row {
        name: "fuzz",
        layer: 9,
        ours: &[
            "weir-adf",
            "weir-psyc",
            "weir-scan",
            "weir-core",
            "weir-query",
            "weir-protocol",
            "weir-program",
            "weir-raft",
            "weir-server",
            "weir-store",
        ],
        foreign: &["libfuzzer-sys", "tempfile", "tokio", "wat"],
    },
    Row {
        name: "xtask",
        layer: 9,
        ours: &[],
        foreign: &["anyhow", "serde_json", "toml"],
    },
];

/// Foreign crates that any crate may import: errors, bytes, hashes, checksums, locks, system calls,
/// spans.
const ANYWHERE: &[&str] = &[
    "bytes",
    "crc-fast",
    "hashbrown",
    "parking_lot",
    "rustix",
    "thiserror",
    "tracing",
    "twox-hash",
];

/// Foreign crates that tests, benches and examples of any crate may import.
const IN_TESTS: &[&str] = &[
    "arbitrary",
    // Other parsers of ADF.
    "atlassian-markdown-converter",
    "h2",
    "jc-adf",
    "memchr",
    // The load client of the HTTP experiments uses it.
    "mio",
    "proptest",
    "rcgen",
    "rustls",
    "serde_json",
    "tempfile",
    "tokio",
    "wasm-smith",
];

/// Our own crates that tests and benches may import beyond their row.
const OURS_IN_TESTS: &[(&str, &str)] = &[
    ("weir-psyc", "weir-scan"),
    ("weir-program", "weir-store"),
    // The client is tested against a real server.
    ("weir-server", "weir"),
    // The server's connection code is a contender in the lab.
    ("weir-lab", "weir-server"),
];

/// Checks every member of the workspace.
pub(super) fn check(packages: &[Package], findings: &mut Findings) {
    for package in packages.iter().filter(|package| package.member) {
        let place = format!("{}/Cargo.toml", package.folder);
        if FEATURES.contains(&package.name.as_str()) {
            continue;
        }
        let Some(row) = row(&package.name) else {
            findings.wrong(&place, "the crate has no row in xtask/src/tidy/imports.rs");
            continue;
        };
        for dependency in &package.dependencies {
            if let Err(why) = edge(row, dependency) {
                findings.wrong(&place, &format!("imports {}: {why}", dependency.name));
            }
        }
        for name in row.ours.iter().chain(row.foreign) {
            if !package.dependencies.iter().any(|one| one.name == *name) {
                let what = format!("does not import {name}, which its row names");
                findings.wrong(&place, &what);
            }
        }
    }
}

/// Packages that contain only features.
pub(super) const FEATURES: [&str; 2] = ["workspace-features", "command-features"];

fn row(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

fn edge(from: &Row, to: &Dependency) -> Result<(), &'static str> {
    let name = to.name.as_str();
    if FEATURES.contains(&name) {
        let built_alone = ["weir-capi", "weir-node", "weir-python"].contains(&from.name);
        return if built_alone {
            Ok(())
        } else {
            Err("it is for packages that are built alone")
        };
    }
    if name == from.name && to.dev {
        // A crate may enable its own features for its tests.
        return Ok(());
    }
    let Some(target) = row(name) else {
        let allowed = from.foreign.contains(&name)
            || ANYWHERE.contains(&name)
            || (to.dev && IN_TESTS.contains(&name));
        return if allowed {
            Ok(())
        } else {
            Err("a foreign crate that its row does not name")
        };
    };
    if to.dev && OURS_IN_TESTS.contains(&(from.name, name)) {
        return Ok(());
    }
    if target.layer >= from.layer {
        return Err("its layer is not lower");
    }
    if to.build {
        return Err("a build script must not import our crates");
    }
    if from.ours.contains(&name) {
        Ok(())
    } else {
        Err("its row does not name it")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{TABLE, edge, row};
    use crate::metadata::Dependency;

    fn check(from: &str, to: &str, dev: bool, allowed: bool) {
        let dependency = Dependency {
            name: to.to_owned(),
            ident: to.replace('-', "_"),
            dev,
            build: false,
        };
        let verdict = edge(row(from).unwrap(), &dependency);
        assert_eq!(verdict.is_ok(), allowed, "{from} -> {to}: {verdict:?}");
    }

    #[test]
    fn imports_go_downward_and_by_the_row() {
        check("weir-store", "weir-core", false, true);
        check("weir-core", "weir-store", false, false);
        check("weir-core", "weir-store", true, false);
        check("weir-store", "weir-psyc", false, false);
        check("weir-cli", "weir-lab", false, false);
        check("weir-core", "tokio", false, false);
        check("weir-core", "bytes", false, true);
        check("weir-core", "proptest", false, false);
        check("weir-core", "proptest", true, true);
        check("weir-psyc", "weir-scan", false, false);
        check("weir-psyc", "weir-scan", true, true);
    }

    #[test]
    fn every_row_names_lower_rows_only() {
        for from in TABLE {
            for name in from.ours {
                assert!(
                    row(name).unwrap().layer < from.layer,
                    "{} -> {name}",
                    from.name
                );
            }
        }
    }
}
