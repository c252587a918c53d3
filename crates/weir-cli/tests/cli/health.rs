//! Tests what the command reports about a store and the machine.

use crate::run::{Place, command_output};

#[test]
fn status_reports_the_properties_of_a_directory() {
    let place = Place::new();
    place.run("put t 1").ok();
    place.run("put u 2").ok();
    let status = place.run("status -o json").ok().json();
    assert_eq!(status["at"], "./weir-data");
    assert_eq!(status["durability"], "group");
    assert_eq!(status["synced"], true);
    assert_eq!(status["writable"], true);
    assert!(status["cause"].is_null());
    assert_eq!(status["topics"], 2);
    assert_eq!(status["applied"], status["durable"]);
    let size = |name: &str| status[name].as_u64().unwrap();
    assert!(size("log_bytes") > 0 && size("data_bytes") >= size("log_bytes"));
    assert!(size("free_bytes") <= size("total_bytes"));
    let weak = place.run("status -o json --durability memory").ok().json();
    assert_eq!(weak["durability"], "memory");
    assert_eq!(weak["synced"], false);
    place.run("status --at nothing").code(4);
}

#[test]
fn doctor_checks_the_machine_and_leaves_no_files() {
    let place = Place::new();
    let checks = place.run("doctor -o json").ok().json();
    let state = |name: &str| {
        let mut rows = checks.as_array().unwrap().iter();
        let row = rows.find(|row| row["check"] == name).expect(name);
        row["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state("clock"), "ok");
    for name in [
        "descriptors",
        "file size",
        "file system",
        "free space",
        "sync",
    ] {
        assert_ne!(state(name), "failed", "{name}");
    }
    assert!(!place.path("weir-data").exists());
    // A limit too low for any store gives exit code 1, and advice for this limit.
    for (limit, check, advice) in [
        ("-n 32", "descriptors", "LimitNOFILE"),
        ("-f 0", "sync", "ulimit -f unlimited"),
    ] {
        let mut shell = place.command("/bin/sh");
        let script = format!("ulimit {limit}; exec \"$0\" doctor -o json");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_weir")]);
        let failed = command_output(shell.output().unwrap()).code(1).json();
        let mut rows = failed.as_array().unwrap().iter();
        let row = rows.find(|row| row["check"] == check).expect(check);
        assert_eq!(row["state"], "failed", "{row}");
        assert!(row["advice"].as_str().unwrap().contains(advice), "{row}");
    }
}
